"""PEFT: the optimistic cost table by hand and as published, and where looking ahead pays."""

from __future__ import annotations

import numpy as np
from support.graphs import equal_gpus
from support.published import topcuoglu, without_waiting

from gnnplace.baselines.heft import heft
from gnnplace.baselines.peft import guide, optimistic_cost_ns, peft
from gnnplace.baselines.scheduling.instance import instance
from gnnplace.baselines.scheduling.list_schedule import schedule_units
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.units.units import allowed, units


def table(posed: Problem) -> list[list[float]]:
    return optimistic_cost_ns(posed, posed.allowed).tolist()


def schedule(posed: Problem) -> tuple[list[int], int]:
    made = units(posed.graph, "ops")
    legal = allowed(posed, made)
    device, length = schedule_units(instance(posed, made, legal, guide(posed, made, legal)))
    return device[made.unit].tolist(), length


def two(second: dict[str, int]) -> Problem:
    """a -> b with a message of 50; a lasts 10 on gpu:0 and 12 on gpu:1."""
    ops = [Op("a", "Op", (Output(50),), time_ns={"gpu:0": 10, "gpu:1": 12}), Op("b", "Op", time_ns=second)]
    return problem(ComputationGraph.from_ops("two", ops, [(0, 0, 1)]), equal_gpus(2))


def test_the_example_of_topcuoglu():
    """n9, say: n10 lasts 21, 7, 16, and a message to it 13: 20 from gpu:0, 7 from gpu:1, 16 from gpu:2. n1 is bound by n2."""
    posed = topcuoglu()
    assert table(posed) == [[48, 38, 53], [35, 19, 35], [28, 22, 27], [38, 19, 36], [32, 19, 32], [23, 18, 30],
                            [21, 7, 16], [18, 7, 16], [20, 7, 16], [0, 0, 0]]  # fmt: skip
    made = units(posed.graph, "ops")
    given = guide(posed, made, allowed(posed, made))
    assert (given.sequence.op + 1).tolist() == [1, 4, 2, 5, 3, 6, 7, 9, 8, 10]
    assert without_waiting(posed, given) == 85


def test_it_looks_ahead_to_where_the_next_op_is_fast():
    """OCT(a) is min(100, 20 + 50) = 70 on gpu:0 and 20 on gpu:1; so a goes to gpu:1 (12 + 20), where HEFT goes to gpu:0 (10)."""
    posed = two({"gpu:0": 100, "gpu:1": 20})
    assert table(posed) == [[70, 20], [0, 0]]
    assert schedule(posed) == ([1, 1], 32)
    assert simulate(posed, [peft(posed, simulate, units_name="ops")])[0].step_time_ns == 32
    assert simulate(posed, [heft(posed, simulate, units_name="ops")])[0].step_time_ns == 80


def test_only_legal_devices_are_looked_ahead_to():
    posed = two({"gpu:0": 100})
    assert table(posed) == [[100, 150], [0, 0]]
    assert schedule(posed) == ([0, 0], 110)


def test_an_op_waits_for_its_inputs_though_its_rank_is_lower():
    """OCT: b 70 and 10 (c: 100, or 10 after 60 on gpu:1), mean 40; a min(70 + 5, 10 + 1 + 1) = 12 and 11, mean 11.5."""
    ops = [
        Op("c", "Op", time_ns={"gpu:0": 100, "gpu:1": 10}),
        Op("b", "Op", (Output(60),), time_ns={"gpu:0": 5, "gpu:1": 1}),
        Op("a", "Op", (Output(1),), time_ns={"gpu": 3}),
    ]
    posed = problem(ComputationGraph.from_ops("late", ops, [(2, 0, 1), (1, 0, 0)]), equal_gpus(2))
    assert table(posed) == [[0, 0], [70, 10], [12, 11]]
    made = units(posed.graph, "ops")
    assert guide(posed, made, np.ones((3, 2), dtype=bool)).sequence.op.tolist() == [2, 1, 0]
    assert schedule(posed) == ([1, 1, 1], 14)
