"""Critical path first: ranks, path and device of the published example, and paths that one device can't take."""

from __future__ import annotations

from support.graphs import equal_gpus
from support.published import topcuoglu, without_waiting

from gnnplace.baselines.cpop import critical_device, critical_path, pins_ns
from gnnplace.baselines.scheduling.instance import Guide, instance
from gnnplace.baselines.scheduling.list_schedule import schedule_units
from gnnplace.baselines.scheduling.ranks import downward_rank_ns, upward_rank_ns
from gnnplace.baselines.scheduling.sequence import sequence
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.problems import Problem
from gnnplace.units.units import allowed, units

DOWNWARD = [0.000, 31.000, 25.000, 22.000, 24.000, 27.000, 62.333, 66.667, 63.667, 93.333]
PRIORITIES = [108.000, 108.000, 105.000, 102.000, 93.000, 90.333, 105.000, 102.333, 108.000, 108.000]


def path(posed: Problem) -> list[int]:
    upward = upward_rank_ns(posed)
    return critical_path(posed, upward, upward + downward_rank_ns(posed)).tolist()


def guide(posed: Problem) -> Guide:
    made, upward = units(posed.graph, "ops"), upward_rank_ns(posed)
    priority = upward + downward_rank_ns(posed)
    critical = critical_path(posed, upward, priority)
    return Guide(sequence(posed.graph, priority), pins_ns(posed, made, allowed(posed, made), critical))


def schedule(posed: Problem) -> tuple[list[int], int]:
    made = units(posed.graph, "ops")
    device, length = schedule_units(instance(posed, made, allowed(posed, made), guide(posed)))
    return device[made.unit].tolist(), length


def path_and_side(second: dict[str, int], memory_bytes: int = 10**9) -> Problem:
    """first -> second -> third, 10 each on gpu:0 and 9 on gpu:1 unless said, with messages of 20; and `side` of 5. All keep 40 bytes."""
    ops = [
        Op("first", "Op", (Output(20),), time_ns={"gpu:0": 10, "gpu:1": 9}, persistent_bytes=40),
        Op("second", "Op", (Output(20),), time_ns=second, persistent_bytes=40),
        Op("third", "Op", time_ns={"gpu:0": 10, "gpu:1": 9}, persistent_bytes=40),
        Op("side", "Op", time_ns={"gpu": 5}, persistent_bytes=40),
    ]
    return problem(ComputationGraph.from_ops("path", ops, [(0, 0, 1), (1, 0, 2)]), equal_gpus(2, memory_bytes))


def test_published_ranks_path_and_makespan():
    """The path n1, n2, n9, n10 lasts 66, 54 and 63 on the three."""
    posed = topcuoglu()
    assert downward_rank_ns(posed).round(3).tolist() == DOWNWARD
    assert (upward_rank_ns(posed) + downward_rank_ns(posed)).round(3).tolist() == PRIORITIES
    assert path(posed) == [0, 1, 8, 9]
    assert critical_device(posed, critical_path(posed, upward_rank_ns(posed), upward_rank_ns(posed)), posed.allowed[:4]) == 1
    assert without_waiting(posed, guide(posed)) == 86


def test_the_path_stands_where_it_is_shortest_and_the_rest_where_it_ends_first():
    """27 on gpu:1; `side`, of lowest priority, would end at 32 there."""
    posed = path_and_side({"gpu:0": 10, "gpu:1": 9})
    assert path(posed) == [0, 1, 2]
    assert schedule(posed) == ([1, 1, 1, 0], 27)


def test_an_op_of_the_path_that_may_not_stand_there_goes_elsewhere():
    """Second may stand on gpu:0 alone, and so most of the path there; without the rule, gpu:1 takes the least time."""
    posed = path_and_side({"gpu:0": 10})
    assert critical_device(posed, critical_path(posed, upward_rank_ns(posed), upward_rank_ns(posed)), posed.allowed[:3]) == 0
    assert schedule(posed) == ([0, 0, 0, 1], 30)


def test_a_path_that_does_not_fit_is_parted():
    """Two of 40 bytes fit into 100: first and second on gpu:1 (18), third after its message of 20 on gpu:0 (38-48)."""
    assert schedule(path_and_side({"gpu:0": 10, "gpu:1": 9}, memory_bytes=100)) == ([1, 1, 0, 0], 48)
