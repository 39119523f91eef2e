"""The free gaps of streams and channels: where a list scheduler may still insert an op or a transfer.

Each resource keeps its latest `KEPT` gaps, sorted by time; the last one never ends. Older gaps are forgotten, so that memory and
time stay bounded on graphs of any size.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Int64

from gnnplace.baselines.scheduling.compiled import allocates_nothing

KEPT = 512
NEVER = 2**62


class Gaps(NamedTuple):
    """Gap k of resource r lasts from `begins[r, k]` to `ends[r, k]`, for k below `number[r]`."""

    begins: Int64[np.ndarray, "resources kept"]
    ends: Int64[np.ndarray, "resources kept"]
    number: Int64[np.ndarray, " resources"]


def free(resources: int) -> Gaps:
    """Resources that nothing occupies yet."""
    start, end = np.zeros((resources, KEPT), dtype=np.int64), np.full((resources, KEPT), NEVER, dtype=np.int64)
    return Gaps(start, end, np.ones(resources, dtype=np.int64))


@no_type_check
@allocates_nothing
def earliest(gaps, resource, ready, duration):
    """The first gap that can hold `duration` from `ready` on, and when it would start there."""
    begins, ends = gaps.begins[resource], gaps.ends[resource]
    high, width = gaps.number[resource] - 1, 1
    while high >= width and ends[high - width] > ready:  # mostly it is one of the last: wider and wider steps back from there
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
    """Occupies a gap from `start` for `duration`, and leaves what is free before and after."""
    begins, ends = gaps.begins[resource], gaps.ends[resource]
    end = start + duration
    before, after = start > begins[gap], end < ends[gap]
    if before and after:
        if gaps.number[resource] == len(begins):
            for k in range(gap):  # the earliest gap, or what is free before, is forgotten
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
