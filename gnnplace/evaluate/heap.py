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
    row, child = 0, 1
    while child < last:  # down to a leaf by the smaller child: which one it is can't be predicted, so it is added, not branched on
        here, there = first[at + child], first[at + child + 1]
        if here == there:
            child += second[at + child + 1] < second[at + child]
        else:
            child += there < here
        first[at + row] = first[at + child]
        second[at + row] = second[at + child]
        row = child
        child = 2 * row + 1
    push(first, second, at, row, first[at + last], second[at + last])  # then up with the last pair, mostly by no step
