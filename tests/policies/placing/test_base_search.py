"""The search for a base: the same candidates every time, in a policy's units; later ones feed back the fastest; none is a sample."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.graphs import chains, equal_gpus, op
from support.observing import Counted, policy_of

import gnnplace as gp
from gnnplace.baselines.own_starts import ORDERS, OTHERS
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.policies.hierarchical.config import HierarchicalConfig
from gnnplace.policies.placing.base_search import FIRST, BaseSearch, Candidates, best_candidate
from gnnplace.policies.tape import Tape
from gnnplace.result import score
from gnnplace.simulator.simulator import simulate
from gnnplace.training.update.rollout import decode, rollout, sampled
from gnnplace.units.units import Units, units


def looks_of(posed, grouped, candidates, schedule="critical-path"):
    """The placements of each look, their results, and the search after all."""
    search, looks = BaseSearch(), []
    while search.looks < candidates.looks:
        search = search.next(posed, grouped, candidates, schedule)
        tried = [start.placement for start in search.waiting]
        results = simulate(posed, tried, timeline=True) if tried else ()
        looks.append((tried, results))
        search = search.heard(posed, results)
    return looks, search


def test_first_candidates_are_one_device_and_then_the_same_lists_every_time():
    posed = chains(4, 5, 3)
    ((tried, _),), _ = looks_of(posed, units(posed.graph, "ops"), Candidates(8))
    assert len(tried) == 8 > 1 + len(FIRST) and len(set(tried[0].device.tolist())) == 1
    ((again, _),), _ = looks_of(posed, units(posed.graph, "ops"), Candidates(8))
    assert [each.device.tolist() for each in tried] == [each.device.tolist() for each in again]
    assert [len(tried) for tried, _ in looks_of(posed, units(posed.graph, "ops"), Candidates(1))[0]] == [1]


def test_candidates_keep_the_units_of_a_policy_whole():
    """Lists of single ops would cut the units of a layer; where most of a unit's work would stand, all of it does."""
    posed = chains(4, 5, 3)
    one = Units("chain", np.repeat(np.arange(4), 5).astype(np.int32), 4)
    for tried, _ in looks_of(posed, one, Candidates(12, 4))[0]:
        for each in tried:
            assert all(len(set(chain)) == 1 for chain in each.device.reshape(4, 5).tolist())


@pytest.mark.parametrize("number", [1, 4])
def test_later_candidates_feed_back_the_fastest_so_far_and_the_best_of_all_is_the_base(number):
    posed = gp.problem("squeezenet", cluster="k40-4", micro_batches=number)
    grouped, candidates = units(posed.graph, "weights"), Candidates(14, 6)
    looks, search = looks_of(posed, grouped, candidates, "depth")
    last = OTHERS - 1 if number > 1 else 0  # a last look proposes two orders at once
    assert [len(tried) for tried, _ in looks] == [8, *[1] * (6 - 2 * last), *[OTHERS, 0][: 2 * last]]
    tried, results = zip(*((each, result) for look in looks for each, result in zip(*look, strict=True)), strict=True)
    times = [result.feasible_ns or 2**62 for result in results]
    for at in range(8, 14 - 2 * last):
        assert tried[at].schedule == tried[int(np.argmin(times[:at]))].schedule
    assert search.best.result.feasible_ns == min(times) == best_candidate(posed, grouped, candidates, "depth", simulate).result.feasible_ns


def test_until_something_fits_candidates_are_random():
    ops = [op(f"o{i}", size=100) for i in range(6)]
    posed = problem(ComputationGraph.from_ops("wide", ops, [(i, 0, 5) for i in range(5)]), equal_gpus(3, memory_bytes=100))
    looks, search = looks_of(posed, units(posed.graph, "ops"), Candidates(9, 3))
    assert [len(tried) for tried, _ in looks] == [6, 1, 1, 1] and search.best.precedent is None
    assert search.best.score == min(score(posed, result) for _, results in looks for result in results)


def test_first_candidates_of_several_micro_batches_have_several_orders_and_the_policy_keeps_the_base_s():
    posed = gp.problem("squeezenet", cluster="k40-4", micro_batches=4)
    policy = policy_of(posed, bases=12)
    ((tried, results),), _ = looks_of(posed, units(posed.graph, "ops"), Candidates(12), "depth")
    assert [each.schedule for each in tried] == ["depth"] * (1 + len(FIRST)) + [*ORDERS, *ORDERS[:3]]
    times = [result.step_time_ns for result in results]
    placement, _, _ = decode(policy, posed, simulate)
    assert placement.schedule == tried[int(np.argmin(times))].schedule in ORDERS


@pytest.mark.parametrize(("bases", "fed_back"), [(3, 0), (8, 3)])
def test_a_policy_that_trusts_its_base_places_as_the_base_does(bases, fed_back):
    posed, count = chains(4, 3, 3), Counted()
    policy = policy_of(posed, base_logit=1e3, bound=50.0, bases=bases, fed_back=fed_back)
    best = best_candidate(posed, units(posed.graph, "ops"), Candidates(bases, fed_back), "critical-path", simulate)
    assert decode(policy, posed, count)[1].feasible_ns == best.result.feasible_ns
    assert count.number == bases + 1


@pytest.mark.parametrize(("bases", "fed_back"), [(3, 0), (8, 3)])
def test_candidates_are_evaluated_once_for_a_problem_and_are_no_samples(bases, fed_back):
    posed, count = chains(4, 3, 3), Counted()
    policy = policy_of(posed, bases=bases, fed_back=fed_back)
    for already in (0, 5):
        assert len(sampled(policy, posed, 5, count, torch.Generator().manual_seed(0))) == 5
        assert count.number == bases + already + 5
    episode = rollout(policy, posed, Tape("sample", 5, torch.Generator().manual_seed(0)), simulate)
    assert [step.looks for step in episode] == [*[True] * (1 + fed_back), False]


def test_something_must_be_there_to_be_fed_back():
    with pytest.raises(ValueError, match=r"policy\.fed_back: 3 of 3 candidates"):
        HierarchicalConfig(devices="observed", bases=3, fed_back=3)
