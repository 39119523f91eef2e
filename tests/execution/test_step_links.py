"""What messages take in steps: found again from steps whose processors' time is known."""

from __future__ import annotations

import numpy as np
import pytest
from support.graphs import op

from gnnplace.costs.measured import LinkSample
from gnnplace.execution.machine import cores
from gnnplace.execution.tensorflow.step_links import DRAWN, StepLinks
from gnnplace.execution.workload import ExecutionPlan
from gnnplace.graph import ComputationGraph

KNOWN = (LinkSample(2**8, 10_000, 20_000), LinkSample(2**20, 10_000 + 2**20, 2 * (10_000 + 2**20)))  # a nanosecond a byte
STEP_NS = 10**8


class Counted:
    """A step whose messages take so many nanoseconds each, and so many a byte, on either side."""

    def __init__(self, graph: ComputationGraph, plan: ExecutionPlan, ns: float, ns_per_byte: float) -> None:
        away = {
            (output, int(plan.device[dst]))
            for src, output, dst in zip(graph.edge_src, graph.edge_data.tolist(), graph.edge_dst, strict=True)
            if plan.device[src] != plan.device[dst]
        }
        self.used, self.closed = 0, False
        self.each = STEP_NS + 2 * round(sum(ns + ns_per_byte * graph.output_bytes[output] for output, _ in away))

    def run(self, steps: int) -> list[int]:
        self.used += steps * self.each
        return [self.each] * steps

    def processor_ns(self) -> int:
        return self.used

    def close(self) -> None:
        self.closed = True


def found(graph: ComputationGraph, ns: float, ns_per_byte: float) -> tuple[tuple[LinkSample, ...], list[Counted]]:
    steps: list[Counted] = []

    def start(plan: ExecutionPlan) -> Counted:
        steps.append(Counted(graph, plan, ns, ns_per_byte))
        return steps[-1]

    links = StepLinks(graph, start, cores("cores", 2).devices)
    for _ in range(3):
        assert len(links.run(2)) == 2
    for step in steps:
        step.each *= 3  # of a fourth run that does not count
    links.run(2)
    links.close()
    return links.samples(KNOWN, [0, 1, 2]), steps


def mixed(size: int) -> ComputationGraph:
    """Chains of ops whose outputs have 100 bytes, and in every other chain `size`."""
    ops = [op(f"c{c}/{i}", 1000, 100 if c % 2 else size) for c in range(8) for i in range(6)]
    return ComputationGraph.from_ops("mixed", ops, [(c * 6 + i, 0, c * 6 + i + 1) for c in range(8) for i in range(5)])


@pytest.mark.parametrize("ns_per_byte", [0.5, 1.0, 3.0])  # known: 1
def test_what_messages_take_is_found_again(ns_per_byte):
    graph = mixed(2**20)
    (small, large), steps = found(graph, 300_000, ns_per_byte)
    assert len(steps) == 2 + len(DRAWN) and all(step.closed for step in steps)
    assert all(sample.arrival_ns == 2 * sample.occupied_ns for sample in (small, large))
    other = ExecutionPlan(cores("cores", 2).devices, (np.arange(graph.num_ops) % 7 > 4).astype(np.int32), graph.order)
    shape = (large.occupied_ns - small.occupied_ns) / (large.bytes - small.bytes)
    said = Counted(graph, other, small.occupied_ns - shape * small.bytes, shape)
    assert said.each - STEP_NS == pytest.approx(Counted(graph, other, 300_000, ns_per_byte).each - STEP_NS, rel=0.05)


def test_steps_of_small_messages_say_nothing_of_bytes():
    (small, large), _ = found(mixed(100), 300_000, 30)
    assert small.occupied_ns == pytest.approx(300_000, rel=0.02)
    assert large.occupied_ns - small.occupied_ns == pytest.approx(2**20, rel=0.02)


def test_a_step_that_sends_nothing_leaves_what_is_known():
    assert found(ComputationGraph.from_ops("lonely", [op("alone", 1000, 100)], []), 300_000, 1)[0] == KNOWN
