"""What a target can't say: a placement finer than its words, or a graph of another framework."""

from __future__ import annotations

from collections.abc import Sequence

NAMED = 3  # of what a message lists


class UnsayableError(ValueError):
    """A placement that a target can't say. The message names the ops or modules, and what would do instead."""


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are.

    >>> listed(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
