"""Error messages of one printable line, even about many faults, many names, or text from a hostile file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

MOST = 10  # faults or names in one message
MOST_CHARACTERS = 4000


def printable(text: str, most: int = MOST_CHARACTERS) -> str:
    r"""`text` as one line of at most `most` characters, with unprintable characters escaped; the rest is only counted.

    Unprintable are control characters, line ends, and invisible marks such as those that change the direction of text.

    >>> printable("conv\x1b[2J\u202e\n1")
    'conv\\x1b[2J\\u202e\\n1'
    >>> printable("abcdef", 3)
    'abc... (6 characters)'
    """
    kept = text[:most]
    if not kept.isprintable():
        kept = "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in kept)
    return kept if len(text) <= most else f"{kept}... ({len(text):,} characters)"


class UsageError(ValueError):
    """A wrong command line. The message names the option, the value and the rule."""


def one_line(complaints: Iterable[str], unsaid: int = 0) -> str:
    """The first `MOST` complaints, joined by semicolons, and the number of the others; `unsaid` are counted with these.

    >>> one_line(["a: is missing", "b: -1 is not between 0 and 8"])
    'a: is missing; b: -1 is not between 0 and 8'
    """
    rest = iter(complaints)
    shown, more = list(islice(rest, MOST)), unsaid + sum(1 for _ in rest)
    return "; ".join([*shown, f"and {more} more"] if more else shown)


def listing(names: Sequence[str]) -> str:
    """The first `MOST` names, and the number of the others.

    >>> listing([f"gpu:{index}" for index in range(64)])[-17:]
    'gpu:9 and 54 more'
    """
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more
