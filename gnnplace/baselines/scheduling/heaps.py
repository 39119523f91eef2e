"""Binary heaps of pairs, a row of arrays each, for compiled functions that allocate nothing."""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Int64

from gnnplace.compiled import allocates_nothing


class Heaps(NamedTuple):
    """Heap r has `size[r]` pairs (key, number); the smallest is in column 0."""

    key: Int64[np.ndarray, "heaps room"]
    number: Int64[np.ndarray, "heaps room"]
    size: Int64[np.ndarray, " heaps"]


def heaps(count: int, room: int) -> Heaps:
    """Empty heaps. Memory that is never written is never allocated by the system."""
    return Heaps(
        np.empty((count, room), dtype=np.int64),
        np.empty((count, room), dtype=np.int64),
        np.zeros(count, dtype=np.int64),
    )


@no_type_check
@allocates_nothing
def push(heaps, heap, key, number):
    """Adds a pair."""
    keys, numbers, row = heaps.key[heap], heaps.number[heap], heaps.size[heap]
    while row > 0:
        above = (row - 1) >> 1
        if keys[above] < key or (keys[above] == key and numbers[above] <= number):
            break
        keys[row], numbers[row] = keys[above], numbers[above]
        row = above
    keys[row], numbers[row] = key, number
    heaps.size[heap] += 1


@no_type_check
@allocates_nothing
def pop(heaps, heap):
    """Removes the smallest pair and returns its number."""
    keys, numbers, last = heaps.key[heap], heaps.number[heap], heaps.size[heap] - 1
    smallest, key, number, row = numbers[0], keys[last], numbers[last], 0
    while 2 * row + 1 < last:
        child = 2 * row + 1
        if child + 1 < last and (
            keys[child + 1] < keys[child] or (keys[child + 1] == keys[child] and numbers[child + 1] < numbers[child])
        ):
            child += 1
        if key < keys[child] or (key == keys[child] and number <= numbers[child]):
            break
        keys[row], numbers[row] = keys[child], numbers[child]
        row = child
    keys[row], numbers[row] = key, number
    heaps.size[heap] = last
    return smallest


@no_type_check
@allocates_nothing
def is_less(one, other, heap):
    """Whether `one[heap]` has a smaller pair on top than `other[heap]`. An empty heap is larger than any other."""
    if one.size[heap] == 0 or other.size[heap] == 0:
        return one.size[heap] > 0
    a, b = one.key[heap, 0], other.key[heap, 0]
    return a < b or (a == b and one.number[heap, 0] < other.number[heap, 0])
