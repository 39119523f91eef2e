"""The stream of a device on which each op of a step runs, read off its timeline."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.problems import Problem
from gnnplace.result import Timeline


def streams(problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> Int64[np.ndarray, " ops"]:
    """Each op's stream, from 0: the first of its device that is free when the op starts."""
    found = np.zeros(problem.num_ops, dtype=np.int64)
    free_ns = [[0] * count for count in problem.cluster.streams.tolist()]
    for op in np.lexsort((timeline.end_ns, timeline.start_ns)).tolist():
        free, start = free_ns[int(device[op])], int(timeline.start_ns[op])
        found[op] = next(stream for stream, end in enumerate(free) if end <= start)
        free[found[op]] = int(timeline.end_ns[op])
    return found
