"""Profiles: what an op is said to take, on a step whose times are known."""

from types import SimpleNamespace

import numpy as np
import pytest

from gnnplace.cluster import Device
from gnnplace.execution.profile import Profiler, op_medians
from gnnplace.execution.workload import OpTimes
from gnnplace.graph import ComputationGraph, Op

CPU = Device("cpu:0", "cpu", 1, 1, 1)


class KnownStep:
    """Ops 0, 2 and 1, in this order, of 10, 30 and 20 ns with 5 and 15 ns between them; op 3 never runs. A step that is not looked into
    takes 70 ns.
    """

    def run(self, steps: int) -> list[int]:
        return [70] * steps

    timed = 0

    def op_times(self, steps: int) -> list[OpTimes]:
        self.timed += steps
        start, end = np.array([100, 160, 115, -1]), np.array([110, 180, 145, -1])
        return [OpTimes(start, end)] * steps

    def close(self) -> None:
        self.closed = True


def workload(step: object) -> SimpleNamespace:
    ops = [Op(name, "Op") for name in "abcd"]
    graph = ComputationGraph.from_ops("known", ops, [])
    return SimpleNamespace(graph=graph, start=lambda plan: step, unplaced=list, links=list, as_run=list)


def profiler(step: object) -> Profiler:
    return Profiler(workload(step), (CPU,))


@pytest.mark.parametrize("steps", [1, 5, 7])
def test_as_many_steps_are_timed_as_were_asked_for(steps: int) -> None:
    step = KnownStep()
    assert op_medians(workload(step), CPU, steps).sum() == 70
    assert step.timed == steps


def test_ops_add_up_to_the_step_that_nobody_looks_into():
    """What lies between ops, 20 ns, is scaled to the 10 ns that the step has beyond the work of its ops."""
    made = profiler(KnownStep())
    assert made.run(3) == [70] * 3
    assert made.op_ns().tolist() == [10, 20 + 8, 30 + 2, 0]
    assert abs(made.op_ns().sum() - 70) <= 1


def test_work_alone_counts_where_looking_made_the_step_no_longer():
    step = KnownStep()
    step.run = lambda steps: [50] * steps
    made = profiler(step)
    made.run(1)
    assert made.op_ns().tolist() == [10, 20, 30, 0]
    made.close()
    assert step.closed


def test_only_the_runs_that_count_are_looked_at():
    made = profiler(step := KnownStep())
    made.run(2)
    step.op_times = lambda steps: [OpTimes(np.array([0, 900, 300, -1]), np.array([200, 1300, 900, -1]))] * steps
    step.run = lambda steps: [1400] * steps
    made.run(4)
    assert made.op_ns([0]).tolist() == [10, 20 + 8, 30 + 2, 0]
    assert made.op_ns([1]).tolist() == [200, 400, 600 + 200, 0]
    assert made.op_ns([0, 1]).tolist() == made.op_ns().tolist() == [200, 400, 600 + 200, 0]  # the median of six steps
