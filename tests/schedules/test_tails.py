"""The tail of an op: the longest path behind it in its step, and what a step of a chain shows."""

from __future__ import annotations

import numpy as np
from support.graphs import chains
from support.random_problems import tiny_problems

from gnnplace.baselines.sampled_lists import list_schedules
from gnnplace.placement import Placement
from gnnplace.schedules.tails import tail_ns
from gnnplace.simulator.simulator import simulate


def plain_tails(posed, device, timeline):
    """The tails by recursion from op to op; `arrival` reads the transfers of the timeline one by one."""
    graph, cluster = posed.graph, posed.cluster
    start, end = timeline.start_ns.tolist(), timeline.end_ns.tolist()
    transfers = list(zip(timeline.transfer_output.tolist(), timeline.transfer_dst.tolist(), strict=True))

    def arrival(edge):
        src, dst, output = (int(column[edge]) for column in (graph.edge_src, graph.edge_dst, graph.edge_data))
        link = cluster.link_index[device[src], device[dst]]
        if device[src] == device[dst]:
            return end[src]
        if output < 0:
            return end[src] + max(1, int(cluster.link_latency_ns[link]))
        number = transfers.index((output, device[dst]))
        return max(int(timeline.transfer_end_ns[number]), int(timeline.receive_end_ns[number])) + int(cluster.link_latency_ns[link])

    def tail(op):
        paths = [0]
        for edge in np.flatnonzero(graph.edge_src == op):
            reader = int(graph.edge_dst[edge])
            paths.append(arrival(edge) - end[op] + end[reader] - start[reader] + tail(reader))
        later = [other for other in np.argsort(start, kind="stable").tolist() if device[other] == device[op]]
        after = later[later.index(op) + 1 :][:1]
        paths += [end[other] - start[other] + tail(other) for other in after if start[other] >= end[op]]
        return max(paths)

    return [tail(op) for op in range(posed.num_ops)]


def test_the_tails_are_those_of_a_plain_recursion():
    for seed, posed in tiny_problems(range(200), 10**6, 30, ops=3, linked=True):
        source = list_schedules(posed, np.random.default_rng(seed))
        placement = source()
        (result,) = simulate(posed, [placement], timeline=True)
        assert tail_ns(posed, placement.device, result.timeline).tolist() == plain_tails(posed, placement.device.tolist(), result.timeline)


def test_the_tail_includes_ops_that_wait_for_the_same_device():
    posed = chains(2, 3, 1)
    placement = Placement(np.zeros(6, dtype=np.int32))
    (result,) = simulate(posed, [placement], timeline=True)
    assert sorted(tail_ns(posed, placement.device, result.timeline)) == [0, 1000, 2000, 3000, 4000, 5000]
