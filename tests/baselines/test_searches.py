"""Exhaustive search and random search."""

from __future__ import annotations

import numpy as np
import pytest
from support.exhaustive import exhaustive
from support.graphs import chains, equal_gpus, op

from gnnplace.baselines.random_units import draw, random_units
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate


def time_of(posed: Problem, placement: Placement) -> int | None:
    return simulate(posed, [placement])[0].feasible_ns


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


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


def test_no_evaluations_are_refused():
    with pytest.raises(ValueError, match="evaluations: 0 is less than 1"):
        random_units(chains(2, 4, 2), simulate, generator(), evaluations=0)
