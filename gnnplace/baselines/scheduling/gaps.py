"""The idle gaps of streams and channels, into which a list scheduler may insert an op or a transfer.

Each resource keeps its latest `KEPT` gaps, sorted by time; the last gap never ends. Older gaps are dropped, so that
memory and time stay bounded on graphs of any size.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Int64

from gnnplace.compiled import allocates_nothing

KEPT = 512
NEVER = 2**62


class Gaps(NamedTuple):
    """Gap k of resource r lasts from `begins[r, k]` to `ends[r, k]`, for k below `number[r]`."""

    begins: Int64[np.ndarray, "resources kept"]
    ends: Int64[np.ndarray, "resources kept"]
    number: Int64[np.ndarray, " resources"]


def free(resources: int) -> Gaps:
    """The gaps of resources that are idle throughout."""
    start, end = np.zeros((resources, KEPT), dtype=np.int64), np.full((resources, KEPT), NEVER, dtype=np.int64)
    return Gaps(start, end, np.ones(resources, dtype=np.int64))


@no_type_check
@allocates_nothing
def earliest(gaps, resource, ready, duration):
    """The first gap with room for `duration` at `ready` or later, and the start within it."""
    begins, ends = gaps.begins[resource], gaps.ends[resource]
    high, width = gaps.number[resource] - 1, 1
    # it is mostly one of the last, so the search steps back from there
    while high >= width and ends[high - width] > ready:
        high -= width
        width *= 2
    low = max(0, high - width + 1)
    while low < high:
        middle = (low + high) >> 1
        if ends[middle] > ready:
            high = middle
        else:
            low = middle + 1
    start = max(begins[low], ready)
    while start + duration > ends[low]:
        low += 1
        start = begins[low]
    return low, start


@no_type_check
@allocates_nothing
def take(gaps, resource, gap, start, duration):
    """Occupies a gap from `start` for `duration`; the rest of the gap before and after stays idle."""
    begins, ends = gaps.begins[resource], gaps.ends[resource]
    end = start + duration
    before, after = start > begins[gap], end < ends[gap]
    if before and after:
        if gaps.number[resource] == len(begins):
            for k in range(gap):  # drops the earliest gap, or the part before `start`
                begins[k], ends[k] = begins[k + 1], ends[k + 1]
            if gap > 0:
                ends[gap - 1] = start
            begins[gap] = end
            return
        for k in range(gaps.number[resource], gap, -1):
            begins[k], ends[k] = begins[k - 1], ends[k - 1]
        gaps.number[resource] += 1
        ends[gap], begins[gap + 1] = start, end
    elif before:
        ends[gap] = start
    elif after:
        begins[gap] = end
    else:
        for k in range(gap, gaps.number[resource] - 1):
            begins[k], ends[k] = begins[k + 1], ends[k + 1]
        gaps.number[resource] -= 1
