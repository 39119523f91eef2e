"""Binary heaps of pairs of integers, smallest pair first: the queues of the simulator's kernel.

Many heaps lie one behind the other in two arrays; a heap is its first row `at` and its `size`. The caller counts.
"""

from __future__ import annotations

from typing import no_type_check

import numba


@numba.njit(cache=True, nogil=True)
@no_type_check
def push(first, second, at, size, a, b):
    """Adds (a, b) to the heap of `size` pairs in rows `at..`."""
    row = size
    while row > 0:
        parent = (row - 1) >> 1
        above = first[at + parent]
        if above < a or (above == a and second[at + parent] < b):
            break
        first[at + row] = above
        second[at + row] = second[at + parent]
        row = parent
    first[at + row] = a
    second[at + row] = b


@numba.njit(cache=True, nogil=True)
@no_type_check
def pop(first, second, at, size):
    """Removes the smallest pair, which the caller has read in row `at`, from the heap of `size` pairs."""
    last = size - 1
    a, b = first[at + last], second[at + last]
    row, child = 0, 1
    while child < last:
        other = child + 1
        if other < last:
            here, there = first[at + child], first[at + other]
            if there < here or (there == here and second[at + other] < second[at + child]):
                child = other
        below = first[at + child]
        if a < below or (a == below and b < second[at + child]):
            break
        first[at + row] = below
        second[at + row] = second[at + child]
        row = child
        child = 2 * row + 1
    first[at + row] = a
    second[at + row] = b
