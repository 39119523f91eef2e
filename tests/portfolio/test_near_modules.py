"""Whole modules near a placement: each where most of its work is, tried beside the best few."""

from __future__ import annotations

import numpy as np

import gnnplace as gp
from gnnplace.baselines.searching.budget import Budget
from gnnplace.placement import Placement
from gnnplace.portfolio.candidates import Candidate, candidate
from gnnplace.portfolio.rounds import FEW, nearest_modules, with_nearest_modules
from gnnplace.simulator.simulator import simulate


def posed(layers: list[str | None], allowed: list[tuple[str, ...] | None] | None = None) -> gp.Problem:
    """A chain of ops of 1, 2, 4, ... ms on two GPUs and a CPU, whose transfers of 8 MB take milliseconds."""
    ops = [
        gp.Op(f"op{i}", "Op", (gp.Output(8 * 10**6),), time_ns={"cpu": 10**6 * 2**i, "gpu": 10**6 * 2**i}, layer=layer, allowed=may)
        for i, (layer, may) in enumerate(zip(layers, allowed or [None] * len(layers), strict=True))
    ]
    return gp.problem(gp.ComputationGraph.from_ops("chain", ops, [(i, 0, i + 1) for i in range(len(ops) - 1)]), "k40-2")


def placed(*device: int) -> Placement:
    return Placement(np.array(device, np.int32))


def judged_all(problem: gp.Problem, *placements: Placement) -> list[Candidate]:
    found = [candidate(problem, simulate, f"planner {number}", each) for number, each in enumerate(placements)]
    return sorted(found, key=lambda winner: winner.score)


def test_each_module_goes_where_most_of_its_work_is():
    problem = posed(["a", "a", "a", "b", "b", "b"])
    first, second, cpu = (problem.cluster.device_names.index(name) for name in ("gpu:0", "gpu:1", "cpu:0"))
    near = nearest_modules(problem, placed(first, first, second, first, cpu, second))
    assert near.device.tolist() == [second, second, second, second, second, second]
    assert nearest_modules(problem, placed(cpu, second, first, second, second, second)).device.tolist() == 3 * [first] + 3 * [second]


def test_devices_that_are_not_allowed_are_passed_over_and_what_can_not_be_whole_stays():
    problem = posed(["a", "a", "b", "b"], [("cpu",), ("gpu",), None, ("gpu",)])
    first, cpu = (problem.cluster.device_names.index(name) for name in ("gpu:0", "cpu:0"))
    found = nearest_modules(problem, placed(cpu, first, cpu, first)).device.tolist()
    assert found == [cpu, first, first, first]


def test_a_faster_one_is_the_best_and_the_others_stay():
    problem = posed(["a", "a", "a", "b", "b", "b"])
    winners = judged_all(problem, placed(0, 1, 0, 1, 0, 1), placed(1, 0, 1, 0, 1, 0))
    budget = Budget(evaluations=10)
    found = with_nearest_modules(problem, budget.metered(simulate), winners, budget)
    assert budget.spent == 2 and found[0].score < winners[0].score and found[0].planner.startswith("modules of planner")
    assert [each for each in found if each in winners] == winners


def test_what_is_whole_and_what_has_no_layers_takes_no_evaluation_and_there_are_never_more_than_allowed():
    budget = Budget(evaluations=1)
    for problem, device in ((posed(["a", "a", "b", "b"]), (0, 0, 1, 1)), (posed([None] * 4), (0, 1, 0, 1))):
        winners = judged_all(problem, placed(*device))
        assert with_nearest_modules(problem, budget.metered(simulate), winners, budget) == winners and budget.spent == 0
    problem = posed(["a", "a", "b", "b"])
    several = judged_all(problem, *(placed(*device) for device in ((0, 1, 0, 1), (0, 1, 1, 0), (1, 0, 1, 0), (1, 0, 0, 1), (1, 0, 0, 0))))
    with_nearest_modules(problem, budget.metered(simulate), several, budget)
    assert budget.spent == 1
    budget = Budget(evaluations=100)
    with_nearest_modules(problem, budget.metered(simulate), several, budget)
    assert 1 < budget.spent <= FEW
