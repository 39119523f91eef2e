"""The memory that a step holds over time, from its allocations and frees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Allocation = tuple[int, int]  # the host's clock, and bytes (negative: freed)


def most(found: Iterable[Allocation]) -> int:
    """The peak of held bytes, relative to the beginning."""
    return max([0, *(now for _, now in held(found))])


def held(found: Iterable[Allocation]) -> Iterator[tuple[int, int]]:
    """The held bytes, relative to the beginning, after each event as `(time, bytes)`.

    At equal times frees precede allocations.
    """
    now = 0
    for when, size in sorted(found):
        now += size
        yield when, now
