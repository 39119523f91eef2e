"""Exhaustive search, random search and hill climbing."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import chains, equal_gpus, op

from gnnplace.baselines.exhaustive import exhaustive
from gnnplace.baselines.hill_climb import hill_climb
from gnnplace.baselines.random_units import draw, random_units
from gnnplace.costs.roofline import problem
from gnnplace.evaluate.simulator import simulate
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problem import Problem


def time_of(posed: Problem, placement: Placement) -> int | None:
    return simulate(posed, [placement])[0].feasible_ns


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


class Counting:
    """An evaluator that counts placements."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, problem: Problem, placements, *, timeline: bool = False):
        self.count += len(placements)
        return simulate(problem, placements, timeline=timeline)


def test_exhaustive_finds_the_only_balanced_split():
    ops = [op("a", 30), op("b", 20), op("c", 10), op("d", 40)]
    posed = problem(ComputationGraph.from_ops("bag", ops, []), equal_gpus(2))
    assert time_of(posed, exhaustive(posed, simulate)) == 50


def test_exhaustive_refuses_what_it_cannot_finish():
    with pytest.raises(ValueError, match=r"more than 1048576"):
        exhaustive(chains(10, 10, 2), simulate)


def test_draws_are_even_over_allowed_devices():
    legal = np.array([[True, False, True], [False, True, False]])
    drawn = draw(legal, 4000, generator())
    assert set(drawn[:, 1].tolist()) == {1}
    assert np.bincount(drawn[:, 0], minlength=3).tolist()[1] == 0 and 1800 < np.bincount(drawn[:, 0])[0] < 2200


def test_more_random_draws_are_never_worse():
    posed = chains(4, 3, 3)
    times = [time_of(posed, random_units(posed, simulate, generator(), evaluations=count)) for count in (1, 10, 100, 300)]
    assert times == sorted(times, reverse=True) and times[-1] < times[0]


@pytest.mark.parametrize("search", [random_units, hill_climb])
def test_the_budget_is_kept(search):
    posed = chains(2, 4, 2)
    with pytest.raises(ValueError, match="evaluations: 0 is less than 1"):
        search(posed, simulate, generator(), evaluations=0)
    counting = Counting()
    hill_climb(posed, counting, generator(), evaluations=101)
    assert counting.count == 101


def test_a_climb_is_never_worse_than_its_start_and_reaches_an_easy_optimum():
    posed = problem(ComputationGraph.from_ops("bag", [op(f"o{i}", 1000) for i in range(12)], []), equal_gpus(3))
    start = Placement(np.zeros(posed.num_ops, dtype=np.int32))
    assert time_of(posed, hill_climb(posed, simulate, generator(), start=start, evaluations=1)) == 12_000
    assert time_of(posed, hill_climb(posed, simulate, generator(), start=start, evaluations=300)) == 4000


def test_a_climb_keeps_what_its_start_splits():
    """A start that splits a coarse unit is not made worse by cutting it into units."""
    ops = [op(f"o{i}", 10, layer="one", time_step=0) for i in range(4)]
    posed = problem(ComputationGraph.from_ops("unit", ops, []), equal_gpus(2))
    start = Placement(np.array([0, 0, 1, 1], dtype=np.int32))
    assert time_of(posed, hill_climb(posed, simulate, generator(), start=start, evaluations=50)) == 20


def test_the_same_seed_climbs_the_same_way():
    posed = chains(3, 4, 3)
    first, second = (hill_climb(posed, simulate, generator(1), evaluations=200).device for _ in range(2))
    assert np.array_equal(first, second)
