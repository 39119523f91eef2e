"""Hill climbing over ranked moves: its budget, its rules, known optima, and that ranking pays."""

from __future__ import annotations

from statistics import geometric_mean

import numpy as np
import pytest
from support.graphs import chains, equal_gpus, op
from support.random_problems import tiny_problems
from support.slow import slow

from gnnplace.baselines.annealing import hill_climb
from gnnplace.baselines.ranked_climb import RankingTurns, path_estimate, ranked_climb
from gnnplace.baselines.searching.budget import Budget
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.moves import columns
from gnnplace.moves.columns import DRAWN, NAMES, hopeless
from gnnplace.moves.drawing import NO_GUIDE, draw
from gnnplace.moves.features import features, work
from gnnplace.moves.neighbourhood import neighbourhood
from gnnplace.moves.situation import situation
from gnnplace.placement import Placement, check
from gnnplace.result import score
from gnnplace.simulator.simulator import simulate


def single(posed):
    return Placement(np.zeros(posed.num_ops, dtype=np.int32))


def climbed(posed, evaluations, seed=0, **options):
    return ranked_climb(
        posed, simulate, np.random.default_rng(seed), start=single(posed), budget=Budget(evaluations=evaluations), **options
    )


def at_random(generator):
    return lambda rows: generator.random(len(rows))


@pytest.mark.parametrize("evaluations", [1, 2, 7, 50])
def test_it_keeps_to_its_budget_and_returns_the_best_that_it_met(evaluations):
    posed, budget, asked, told = chains(3, 8, 3), Budget(evaluations=evaluations), [], []

    def watched(posed, placements, *, timeline=False, limit_ns=None):
        asked.extend(placements)
        return simulate(posed, placements, timeline=timeline, limit_ns=limit_ns)

    found = ranked_climb(posed, watched, np.random.default_rng(1), start=single(posed), budget=budget, report=told.append)
    assert len(asked) == budget.spent == evaluations
    best = min(score(posed, result) for result in simulate(posed, asked))
    assert score(posed, simulate(posed, [found])[0]) == best and (not told or told[-1] == best)
    assert told == sorted(told, reverse=True)
    assert len({placement.device.tobytes() for placement in asked}) == len(asked)  # none twice


def test_the_same_generator_gives_the_same_placement():
    first, second, other = (climbed(chains(3, 8, 3), 60, seed) for seed in (5, 5, 6))
    assert np.array_equal(first.device, second.device) and not np.array_equal(first.device, other.device)


@pytest.mark.parametrize("count", [5, slow(20)])
def test_rules_hold_and_it_is_never_worse_than_its_start(count):
    for seed, posed in tiny_problems(range(400), 10**6, count, ops=3, linked=True):
        start = climbed(posed, 1, seed)  # as it stands, where that is allowed
        found = climbed(posed, 40, seed)
        assert check(posed, found) is None
        assert score(posed, simulate(posed, [found])[0]) <= score(posed, simulate(posed, [start])[0]), seed


def test_it_finds_the_optimum_of_chains():
    posed = chains(2, 8, 2)
    assert simulate(posed, [climbed(posed, 60)])[0].step_time_ns == 8000


def test_what_overflows_is_made_to_fit():
    ops = [op(f"o{i}", 100, persistent_bytes=40) for i in range(8)]
    posed = problem(ComputationGraph.from_ops("large", ops, []), equal_gpus(4, memory_bytes=110))
    assert simulate(posed, [single(posed)])[0].infeasible is not None
    assert simulate(posed, [climbed(posed, 100)])[0].feasible_ns == 200


def test_moves_that_keep_a_device_or_channel_busy_for_longer_than_the_step_come_last():
    rows = np.zeros((4, len(NAMES) + len(DRAWN)), np.float32)
    rows[:3, columns.CHAIN_MORE] = -0.2, -0.5, -0.5
    rows[1, columns.LOAD_AFTER] = rows[2, columns.CHANNEL_AFTER] = 1.0
    assert path_estimate(rows) == pytest.approx(np.array([0.2, 0.5, 0.5, 0]))
    assert RankingTurns(1).merged(path_estimate(rows)[None], hopeless(rows))[0].tolist() == [0, 3, 1, 2]
    rows[1:, columns.OVERFLOW_BEFORE] = 0.1  # a longer step that overflows less is better
    assert not hopeless(rows).any()


def test_rankings_take_turns_and_the_one_that_gains_more_comes_more_often():
    turns, none = RankingTurns(2), np.zeros(40, bool)
    up, down = np.arange(40.0), -np.arange(40.0)
    order, whose = turns.merged(np.stack([up, down]), none)
    assert sorted(order[:4]) == [0, 1, 38, 39] and sorted(order) == list(range(40))
    assert whose[[39, 38, 0, 1]].tolist() == [0, 0, 1, 1] and turns.shares.tolist() == [0.5, 0.5]
    turns.learn(np.array([0, 0, 1, 1]), [0.1, 0.0, 0.0, 0.0])
    assert turns.shares.sum() == pytest.approx(1) and 0.7 < turns.shares[0] <= 0.8
    order, _ = turns.merged(np.stack([up, down]), none)
    assert (order[:5] >= 20).sum() == 4


def test_no_step_gets_shorter_after_a_hopeless_move():
    refused = 0
    for seed, posed in tiny_problems(range(300), 10**6, 30, ops=3, linked=True):
        around, generator = neighbourhood(posed), np.random.default_rng(seed)
        device = around.start(Placement(generator.integers(0, posed.num_devices, posed.num_ops).astype(np.int32)))
        (result,) = simulate(posed, [around.placement(device, "critical-path")], timeline=True)
        if result.infeasible is None and around.grains:
            moves = draw(around, device, NO_GUIDE, generator, 20)
            rows = features(around.terrain, situation(posed, around, device, result), moves, work(around.terrain))
            for move in np.flatnonzero(hopeless(rows)).tolist():
                (after,) = simulate(posed, [around.placement(moves.after(move, device), "critical-path")])
                assert after.step_time_ns >= result.step_time_ns
                refused += 1
    assert refused > 25


def test_ranking_beats_chance_and_hill_climbing_at_equal_evaluations():
    ratio = {"chance": [], "climb": []}
    for seed in range(4):
        posed = chains(3 + seed % 3, 12, 4, size=400)
        budget = 32
        ranked = simulate(posed, [climbed(posed, budget, seed)])[0].step_time_ns
        chance = climbed(posed, budget, seed, ranks=[at_random(np.random.default_rng(seed))])
        plain = hill_climb(posed, simulate, np.random.default_rng(seed), start=single(posed), budget=Budget(evaluations=budget))
        for name, placement in (("chance", chance), ("climb", plain)):
            ratio[name].append(ranked / simulate(posed, [placement])[0].step_time_ns)
    assert geometric_mean(ratio["chance"]) < 0.95 and geometric_mean(ratio["climb"]) < 0.95, ratio
