"""What a target can't say: a placement finer than its words, a graph of another framework, what failed in its trial.

With it go the options of `gnnplace place` that keep together what a target can't part.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

from gnnplace.choices import Granularity

NAMED = 3  # of what a message lists
MOST_CHARACTERS = 200  # of another program's error
ONE_DEVICE = "--devices with one device would"


class UnsayableError(ValueError):
    """A placement that a target can't say. The message names the ops or modules, and what would do instead."""


class Fault(NamedTuple):
    """What went wrong, the path of the module in whose own code it did ("" is
    the model's), and whether it does so on one device, too.
    """

    what: str
    where: str
    always: bool = False


class Tried(NamedTuple):
    """What came of a trial: a `fault` of what was tried, or why it could not be (`untried`), or neither."""

    fault: Fault | None = None
    untried: str | None = None


NOT_AT_HAND = Tried(untried="whose module is not at hand")


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are.

    >>> listed(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def together(module: str, other: str) -> str:
    """What keeps two modules on one device.

    >>> together("layers.0.input", "layers.1.hidden"), together("wte", "head")
    ('place with --keep-whole layers', 'no granularity would do, --devices with one device would')
    """
    shared = around(module, other)
    return f"place with --keep-whole {'.'.join(shared)}" if shared else f"no granularity would do, {ONE_DEVICE}"


def around(module: str, other: str) -> list[str]:
    """The parts of the innermost module that two are in."""
    pairs = zip(module.split("."), other.split("."), strict=False)
    return [part for part, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]


def beside(module: str, other: str) -> str:
    """What keeps two modules on one device, and nothing else there.

    >>> beside("wte", "lm_head")
    'place with --granularity module --keep-whole wte+lm_head'
    """
    return f"place with --granularity module --keep-whole {shlex.quote(f'{module}+{other}')}"


def whole(paths: Iterable[str], granularity: Granularity = "module") -> str:
    """What keeps each of some modules whole, and those that are numbered like them.

    >>> whole(["blocks.0.mlp", "blocks.3", "encoder.mix"])
    "place with --granularity module --keep-whole 'blocks.*' encoder.mix"
    """
    patterns = dict.fromkeys(".".join("*" if part.isdigit() else part for part in path.split(".")) for path in paths)
    outer = [each for each in patterns if not any(each.startswith(f"{other}.") for other in patterns)]
    return f"place with --granularity {granularity} --keep-whole {' '.join(map(shlex.quote, outer))}"
