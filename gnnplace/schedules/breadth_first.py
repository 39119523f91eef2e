"""The last two micro-batches of each device layer by layer, instead of one after the other.

A gradient is then complete, and can be summed over devices, while earlier layers are still computed: the breadth-first
accumulation of Lamy-Poirier (MLSys 2023). It takes the memory of two micro-batches in flight; more of them would not
help, since the last two leave about as long for what is sent.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.graph import NONE, ComputationGraph
from gnnplace.result import Timeline
from gnnplace.schedules.moments import by_moment, raised


def breadth_first(
    graph: ComputationGraph, device: Int32[np.ndarray, " ops"], timeline: Timeline, part: float = 1.0
) -> Int64[np.ndarray, " ops"] | None:
    """Priorities of the order in which ops started, in which a device's last micro-batch but one waits for the last.

    The last `part` of it waits, by its time from start to end; the less, the less memory both take. None if no device
    works on two micro-batches. A micro-batch is that of the device that works longest on it.
    """
    copies, start = graph.copies, timeline.start_ns
    if copies is None:
        return None
    works = np.flatnonzero((copies.micro_batch != NONE) & ~copies.added)
    moment = np.where(copies.added, 0, start)  # what is added comes as soon as it can
    pairs = _last_two(copies.micro_batch[works], device[works], start[works], timeline.end_ns[works])
    for before, last in pairs:
        ops = works[copies.micro_batch[works] == last]
        of_source = np.full(copies.original.num_ops + 1, NONE, dtype=np.int64)
        of_source[copies.source[ops]] = start[ops]
        all_before = works[copies.micro_batch[works] == before]
        begin, end = start[all_before].min(), timeline.end_ns[all_before].max()
        waits = all_before[start[all_before] >= end - part * (end - begin)]
        at = of_source[copies.source[waits]]
        moment[waits] = np.where(at == NONE, moment[waits], at)
    return by_moment(raised(graph, moment)) if pairs else None


def _last_two(
    micro_batch: Int32[np.ndarray, " works"],
    device: Int32[np.ndarray, " works"],
    start: Int64[np.ndarray, " works"],
    end: Int64[np.ndarray, " works"],
) -> list[tuple[int, int]]:
    """The last two micro-batches of each device that has two, by their first starts."""
    busy = np.zeros((int(micro_batch.max()) + 1, int(device.max()) + 1), dtype=np.int64)
    np.add.at(busy, (micro_batch, device), end - start)
    first = np.full(len(busy), np.iinfo(np.int64).max)
    np.minimum.at(first, micro_batch, start)
    main, order = busy.argmax(axis=1), np.argsort(first, kind="stable")
    rows = [order[main[order] == each].tolist() for each in np.unique(main)]
    return [(row[-2], row[-1]) for row in rows if len(row) > 1]
