"""The memory that a step holds over time, from its allocations and frees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Allocation = tuple[int, int]  # the host's clock, and bytes (negative: freed)


def most(events: Iterable[Allocation]) -> int:
    """The peak of held bytes, relative to the beginning."""
    return max([0, *(now for _, now in held(events))])


def held(events: Iterable[Allocation]) -> Iterator[tuple[int, int]]:
    """The held bytes, relative to the beginning, after each event as `(time, bytes)`.

    At equal times frees precede allocations.
    """
    now = 0
    for when, size in sorted(events):
        now += size
        yield when, now
