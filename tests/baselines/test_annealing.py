"""Simulated annealing and hill climbing: what they accept, that they keep to their budget and their rules, and find a known optimum."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from support.exhaustive import exhaustive
from support.graphs import chains, equal_gpus, op
from support.slow import slow

from gnnplace.baselines.annealing import HOT, _worst, annealing, hill_climb
from gnnplace.baselines.searching.budget import Budget
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement, check
from gnnplace.result import Score, score
from gnnplace.simulator.simulator import simulate


def single(posed):
    return Placement(np.zeros(posed.num_ops, dtype=np.int32))


class Watched:
    """The simulator, with all that it was asked for."""

    def __init__(self):
        self.asked, self.looked = [], []

    def __call__(self, posed, placements, *, timeline=False, limit_ns=None):
        self.asked.append(list(placements))
        if timeline:
            self.looked.extend(placements)
        return simulate(posed, placements, timeline=timeline, limit_ns=limit_ns)


@pytest.mark.parametrize(("search", "at_most_ns"), [(annealing, 8000), slow(hill_climb, 8200)])
def test_it_finds_the_optimum_of_chains_and_a_climb_comes_near(search, at_most_ns):
    posed = chains(2, 8, 2)
    found = search(posed, simulate, np.random.default_rng(0), start=single(posed), budget=Budget(evaluations=300))
    assert simulate(posed, [found])[0].step_time_ns <= at_most_ns


@pytest.mark.parametrize("evaluations", [1, 2, 7, 50])
def test_it_keeps_to_its_budget_and_returns_the_best_that_it_met(evaluations):
    posed, watched, budget = chains(3, 8, 3), Watched(), Budget(evaluations=evaluations)
    found = annealing(posed, watched, np.random.default_rng(1), start=single(posed), budget=budget)
    asked = [placement for together in watched.asked for placement in together]
    assert len(asked) == budget.spent == evaluations
    assert score(posed, simulate(posed, [found])[0]) == min(score(posed, result) for result in simulate(posed, asked))
    assert len({placement.device.tobytes() for placement in asked}) > 0.9 * len(asked)  # none twice, but where it looks


def test_the_same_generator_gives_the_same_placement():
    posed = chains(3, 8, 3)
    runs = [
        annealing(posed, simulate, np.random.default_rng(seed), start=single(posed), budget=Budget(evaluations=60)) for seed in (5, 5, 6)
    ]
    assert np.array_equal(runs[0].device, runs[1].device) and not np.array_equal(runs[0].device, runs[2].device)


def test_worse_placements_are_accepted_by_their_temperature():
    """With a chance of 1 / e where the step is longer by the temperature, of 1 / e^2 where by twice that; never where it overflows more."""
    generator = np.random.default_rng(0)
    worst = [_worst(Score(0, 0, 10**6), HOT, generator) for _ in range(4000)]
    for times in (1, 2):
        longer = (0, 0, round(10**6 * (1 + times * HOT)))
        assert np.mean([longer <= each for each in worst]) == pytest.approx(np.exp(-times), abs=0.03)
    assert all((0, 0, 10**6) <= each < (1, 1, 1) for each in worst)
    for each in (_worst(Score(1, 5, 10**6), HOT, generator) for _ in range(100)):
        assert each > (0, 0, 10**9) and (1, 5, 10**6) <= each < (1, 6, 0)
    assert _worst(Score(0, 0, 10**9), 0.0, generator) == (0, 0, 10**9)


@pytest.mark.parametrize("bytes_each", [0, slow(40)])
def test_steps_that_are_left_off_change_nothing(bytes_each):
    """Also where it begins with an overflow: then no step may be left off."""
    ops = [replace(op(f"o{i}", 100 + i, 50), persistent_bytes=bytes_each) for i in range(12)]
    edges = [(i, 0, j) for i, j in ((0, 3), (1, 3), (1, 4), (3, 7), (4, 8), (5, 8), (6, 9), (8, 11))]
    posed = problem(ComputationGraph.from_ops("some", ops, edges), equal_gpus(3, memory_bytes=400))
    limits = []

    def whole(posed, placements, *, timeline=False, limit_ns=None):
        limits.append(limit_ns)
        return simulate(posed, placements, timeline=timeline)

    found = [
        annealing(posed, evaluate, np.random.default_rng(0), start=single(posed), budget=Budget(evaluations=200))
        for evaluate in (simulate, whole)
    ]
    assert np.array_equal(found[0].device, found[1].device)
    assert any(limits) and (limits[1] is None) == (bytes_each > 0)


def test_rules_hold_and_overflow_is_left():
    """Memory for half of the ops on each device; some ops may stand on one kind alone, two always together."""
    devices = (Device("cpu:0", "cpu", 400, 10**9, 10**9), *(Device(f"gpu:{i}", "gpu", 40, 10**9, 10**9) for i in range(2)))
    links = tuple(Link(a.name, b.name, 10**9) for a in devices for b in devices if a is not b)
    ops = [op(f"o{i}", 100, 1, colocation="pair" if i in (3, 7) else None) for i in range(10)]
    ops = [replace(each, persistent_bytes=10, allowed=("gpu",) if each.name == "o5" else None) for each in ops]
    posed = problem(ComputationGraph.from_ops("rules", ops, [(i, 0, j) for i, j in pairwise(range(10))]), Cluster("c", devices, links))
    start = Placement(np.ones(10, dtype=np.int32))
    assert simulate(posed, [start])[0].infeasible
    found = annealing(posed, simulate, np.random.default_rng(0), start=start, budget=Budget(evaluations=400))
    assert check(posed, found) is None and simulate(posed, [found])[0].infeasible is None


@pytest.mark.parametrize("seed", [0, slow(1), slow(2)])
def test_it_is_never_worse_than_its_start_and_never_better_than_the_optimum(seed):
    posed = chains(2, 3, 2)
    least = score(posed, simulate(posed, [exhaustive(posed, simulate)])[0])
    found = annealing(posed, simulate, np.random.default_rng(seed), start=single(posed), budget=Budget(evaluations=30))
    assert least <= score(posed, simulate(posed, [found])[0]) <= score(posed, simulate(posed, [single(posed)])[0])


def test_one_device_or_one_op_leaves_nothing_to_move():
    for posed in (problem(chains(2, 2, 1).graph, equal_gpus(1)), problem(ComputationGraph.from_ops("one", [op("a")], []), equal_gpus(2))):
        found = annealing(posed, simulate, np.random.default_rng(0), start=single(posed), budget=Budget(evaluations=5))
        assert not found.device.any()


def test_a_climb_takes_nothing_that_is_worse():
    """What is evaluated next always differs by one move from the best so far: the chain of accepted placements never gets slower."""
    posed, watched, said = chains(3, 4, 3), Watched(), []
    hill_climb(posed, watched, np.random.default_rng(3), start=single(posed), budget=Budget(evaluations=200), report=said.append)
    looks = [score(posed, result) for result in simulate(posed, watched.looked)]
    assert len(looks) > 2 and looks == sorted(looks, reverse=True)
    assert said == sorted(set(said), reverse=True) and said[-1] == min(said)


def test_what_is_found_is_told_once_and_in_order():
    posed, said = chains(3, 8, 3), []
    found = annealing(posed, simulate, np.random.default_rng(0), start=single(posed), budget=Budget(evaluations=200), report=said.append)
    assert said == sorted(set(said), reverse=True) and said[-1] == score(posed, simulate(posed, [found])[0])


def test_an_overflow_that_must_stay_is_made_less():
    """Nothing fits: 30 ops of 10 bytes on three devices of 40. What is returned overflows as little as it can."""
    ops = [replace(op(f"o{i}", 100), persistent_bytes=10) for i in range(30)]
    posed = problem(ComputationGraph.from_ops("much", ops, []), equal_gpus(3, memory_bytes=40))
    found = annealing(posed, simulate, np.random.default_rng(0), start=single(posed), budget=Budget(evaluations=300))
    assert score(posed, simulate(posed, [single(posed)])[0])[:2] == (1, 260)
    assert score(posed, simulate(posed, [found])[0])[:2] == (1, 180)


def test_evaluators_without_timelines_do():
    def plain(posed, placements, *, timeline=False, limit_ns=None):
        return simulate(posed, placements)

    posed = chains(2, 8, 2)
    found = annealing(posed, plain, np.random.default_rng(0), start=single(posed), budget=Budget(evaluations=300))
    assert simulate(posed, [found])[0].step_time_ns < 9000


def test_an_illegal_start_ends_legal():
    ops = [op(f"o{i}", 100, colocation="pair" if i < 2 else None) for i in range(4)]
    posed = problem(ComputationGraph.from_ops("pair", ops, []), equal_gpus(2))
    start = Placement(np.array([0, 1, 0, 0], dtype=np.int32))
    assert check(posed, start) is not None
    assert check(posed, annealing(posed, simulate, np.random.default_rng(0), start=start, budget=Budget(evaluations=1))) is None
