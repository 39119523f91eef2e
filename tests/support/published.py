"""The example of Topcuoglu, Hariri and Wu (2002), by which list schedulers are compared, and its world: messages that never wait."""

from __future__ import annotations

import numpy as np

from gnnplace.baselines.scheduling.instance import Guide
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.problems import Problem

TIMES = [
    (14, 16, 9),
    (13, 19, 18),
    (11, 13, 19),
    (13, 8, 17),
    (12, 13, 10),
    (13, 16, 9),
    (7, 15, 11),
    (5, 11, 14),
    (18, 12, 20),
    (21, 7, 16),
]
SENDS = {(1, 2): 18, (1, 3): 12, (1, 4): 9, (1, 5): 11, (1, 6): 14, (2, 8): 19, (2, 9): 16, (3, 7): 23, (4, 8): 27, (4, 9): 23,
         (5, 9): 13, (6, 8): 15, (7, 10): 17, (8, 10): 11, (9, 10): 13}  # fmt: skip


def topcuoglu() -> Problem:
    """Figure 2 of the paper. Its messages never wait for each other; ours take turns on each of the links."""
    outputs = {i: [size for (src, _), size in SENDS.items() if src == i] for i in range(1, 11)}
    ops = [
        Op(f"n{i}", "Op", tuple(map(Output, outputs[i])), time_ns={f"gpu:{d}": time for d, time in enumerate(TIMES[i - 1])})
        for i in range(1, 11)
    ]
    number = {edge: [other for other in SENDS if other[0] == edge[0]].index(edge) for edge in SENDS}
    devices = tuple(Device(f"gpu:{d}", "gpu", 10**9, 1, 1) for d in range(3))
    links = tuple(Link(a.name, b.name, 10**9, channel=f"{a.name}->{b.name}") for a in devices for b in devices if a is not b)
    edges = [(src - 1, number[src, dst], dst - 1) for src, dst in SENDS]
    return problem(ComputationGraph.from_ops("topcuoglu", ops, edges), Cluster("three", devices, links))


def without_waiting(posed: Problem, guide: Guide) -> int:
    """The makespan of list scheduling as published: insertion, earliest finish plus what the guide adds, a message lasts its bytes."""
    end: dict[int, int] = {}
    device: dict[int, int] = {}
    busy: list[list[tuple[int, int]]] = [[] for _ in range(posed.num_devices)]
    added = np.zeros_like(posed.time_ns) if guide.added_ns is None else guide.added_ns
    edges = list(zip(posed.graph.edge_src.tolist(), posed.graph.edge_bytes.tolist(), posed.graph.edge_dst.tolist(), strict=True))

    def start(op: int, there: int) -> int:
        ready = max((end[src] + (size if device[src] != there else 0) for src, size, dst in edges if dst == op), default=0)
        for begin, finish in sorted(busy[there]):
            if ready + posed.time_ns[op, there] <= begin:
                break
            ready = max(ready, finish)
        return ready

    for op in guide.sequence.op.tolist():
        device[op] = min(range(posed.num_devices), key=lambda there: start(op, there) + posed.time_ns[op, there] + added[op, there])
        begin = start(op, device[op])
        end[op] = begin + int(posed.time_ns[op, device[op]])
        busy[device[op]].append((begin, end[op]))
    return max(end.values())
