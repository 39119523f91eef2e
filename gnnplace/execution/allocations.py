"""What a step allocates and frees, and the most that it holds of it at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Allocation = tuple[int, int]  # when, by the host's clock, and how many bytes; freed ones are negative


def most(found: Iterable[Allocation]) -> int:
    """The most bytes that were held at once, beyond what was before."""
    return max([0, *(now for _, now in held(found))])


def held(found: Iterable[Allocation]) -> Iterator[tuple[int, int]]:
    """From when on how many bytes were held, beyond what was before; what is freed at a time goes before what is allocated then."""
    now = 0
    for when, size in sorted(found):
        now += size
        yield when, now
