"""A base schedule as an observation: its rows are the features of moves, it is the best of its candidates, and no sample of a policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.graphs import chains, equal_gpus, op

import gnnplace as gp
from gnnplace.baselines.own_starts import ORDERS
from gnnplace.config.algorithms import PpoConfig, ReinforceConfig
from gnnplace.config.training import TrainingConfig
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.moves.drawing import Drawn
from gnnplace.moves.features import features, work
from gnnplace.moves.neighbourhood import neighbourhood
from gnnplace.moves.ranking import squashed
from gnnplace.placement import Placement
from gnnplace.policies.hierarchical.config import HierarchicalConfig
from gnnplace.policies.placing.base import BASE_OBSERVATIONS, FIRST, STAYS, best_base, candidates, useless
from gnnplace.policies.tape import Tape
from gnnplace.simulator.simulator import simulate
from gnnplace.training.update.learning import Learning
from gnnplace.training.update.rollout import decode, evaluated, rollout, sampled
from gnnplace.units.units import Units, units

OF = {"features": "costs", "neighbours": "messages", "kinds": "canonical", "devices": "observed", "units": "ops"}
SMALL = {"groups": 4, "width": 16, "encoder_width": 8, "encoder_rounds": 1}


def policy_of(posed, **knobs):
    torch.manual_seed(0)
    config = HierarchicalConfig(**(OF | SMALL | {"grouper": "scheduled", "bases": 3} | knobs))
    return config.build(config.shape([posed]), 1, 0)


def base_on(posed, device):
    """The base of one placement, and its devices."""
    placement = Placement(np.array(device, np.int32))
    return best_base(posed, units(posed.graph, "ops"), [placement], simulate(posed, [placement], timeline=True))


def by_unit(posed, of_op):
    """What the op of each unit has: units are numbered in topological order."""
    value = np.zeros(posed.num_ops, np.int64)
    value[units(posed.graph, "ops").unit] = of_op
    return value


class Counted:
    """The simulator, and how many placements it has simulated."""

    def __init__(self):
        self.number = 0

    def __call__(self, posed, placements, **options):
        self.number += len(placements)
        return simulate(posed, placements, **options)


def test_a_row_holds_the_features_of_sending_the_group_to_the_device():
    posed, device = chains(3, 4, 3), [0, 0, 1, 1] * 2 + [2] * 4
    base, group = base_on(posed, device), by_unit(posed, [0, 0, 1, 1] * 2 + [2] * 4)
    rows = base.rows(group, 4)
    assert rows.shape == (4, 3, len(BASE_OBSERVATIONS))
    around = neighbourhood(posed)
    for number, to in ((0, 1), (1, 2), (2, 0)):
        members = np.flatnonzero(group == number)
        ptr, where = np.array([0, len(members)]), np.full(len(members), to, np.int32)
        none = np.zeros(1, np.int8)
        move = Drawn(ptr, members, where, np.zeros((1, 2), np.int8), none, none + 1, np.zeros(1, np.uint64))
        plain = features(around.terrain, base.situation, move, work(around.terrain))[0, :STAYS]
        np.testing.assert_allclose(rows[number, to, :STAYS], squashed(plain.astype(np.float64)), rtol=1e-5, atol=1e-6)


def test_a_group_that_stays_has_zeros_and_its_share_of_work():
    posed = chains(2, 3, 2)
    base, group = base_on(posed, [0, 0, 0, 1, 1, 1]), by_unit(posed, [0, 0, 0, 1, 1, 0])
    rows = base.rows(group, 3)
    assert rows[:, :, STAYS].tolist() == [[0.75, 0.25], [0.0, 1.0], [0.0, 0.0]]
    assert not rows[1, 1, :STAYS].any() and rows[0, 0, :STAYS].any()
    assert base.units(6).tolist() == by_unit(posed, [0, 0, 0, 1, 1, 1]).tolist()


def test_candidates_are_one_device_and_then_the_same_lists_every_time():
    posed = chains(4, 5, 3)
    tried = candidates(posed, units(posed.graph, "ops"), 8, "critical-path")
    assert len(tried) == 8 > 1 + len(FIRST) and len(set(tried[0].device.tolist())) == 1
    again = candidates(posed, units(posed.graph, "ops"), 8, "critical-path")
    assert [each.device.tolist() for each in tried] == [each.device.tolist() for each in again]
    assert len(candidates(posed, units(posed.graph, "ops"), 1, "critical-path")) == 1


def test_candidates_keep_the_units_of_a_policy_whole():
    """Lists of single ops would cut the units of a layer; where most of a unit's work would stand, all of it does."""
    posed = chains(4, 5, 3)
    one = Units("chain", np.repeat(np.arange(4), 5).astype(np.int32), 4)
    for each in candidates(posed, one, 8, "critical-path"):
        assert all(len(set(chain)) == 1 for chain in each.device.reshape(4, 5).tolist())


def test_the_base_is_the_best_candidate_and_stays_until_something_is_better():
    posed, of_ops = chains(3, 4, 3), units(chains(3, 4, 3).graph, "ops")
    apart, together = (Placement(np.array(device, np.int32)) for device in ([0] * 4 + [1] * 4 + [2] * 4, [0] * 12))
    results = simulate(posed, [together, apart], timeline=True)
    base = best_base(posed, of_ops, [together, apart], results)
    assert base.device.tolist() == by_unit(posed, apart.device).tolist()
    assert best_base(posed, of_ops, [together], results[:1], base) is base
    one = best_base(posed, of_ops, [together], results[:1])
    assert best_base(posed, of_ops, [apart], results[1:], one).device.tolist() == by_unit(posed, apart.device).tolist()


def test_without_a_timeline_there_is_no_base():
    posed = chains(1, 2, 2)
    (result,) = simulate(posed, [Placement(np.zeros(2, np.int32))])
    with pytest.raises(ValueError, match=r"nothing that could be observed runs"):
        best_base(posed, units(posed.graph, "ops"), [Placement(np.zeros(2, np.int32))], [result])


def test_a_policy_that_trusts_its_base_places_as_the_base_does():
    posed, count = chains(4, 3, 3), Counted()
    policy = policy_of(posed, base_logit=1e3, bound=50.0)
    tried = candidates(posed, units(posed.graph, "ops"), 3, "critical-path")
    best = min(result.feasible_ns for result in simulate(posed, tried))
    assert decode(policy, posed, count)[1].feasible_ns == best
    assert count.number == 3 + 1


def test_candidates_are_evaluated_once_for_a_problem_and_are_no_samples():
    posed, count = chains(4, 3, 3), Counted()
    policy = policy_of(posed)
    assert len(sampled(policy, posed, 5, count, torch.Generator().manual_seed(0))) == 5 and count.number == 3 + 5
    assert len(sampled(policy, posed, 5, count, torch.Generator().manual_seed(0))) == 5 and count.number == 3 + 10


def test_a_later_round_observes_the_best_placement_so_far():
    posed = chains(4, 3, 3)
    policy = policy_of(posed, rounds=3)
    episode = rollout(policy, posed, Tape("sample", 6, torch.Generator().manual_seed(1)), simulate)
    assert [step.looks for step in episode] == [True, False, False, False]
    assert len(evaluated(episode)) == 18
    state = policy.reset(posed, 6)
    for step in episode[:2]:
        state = state._replace(tried=step.placements, round=state.round + len(step.placements) // 6)
        state = policy._with_base(state, step.results)
    best = min(result.feasible_ns for step in episode[:2] for result in step.results)
    assert state.tables.base.situation.step_ns == best


def test_a_policy_with_a_base_needs_an_evaluator():
    posed = chains(2, 2, 2)
    with pytest.raises(ValueError, match=r"policy\.bases: a base is observed"):
        rollout(policy_of(posed), posed, Tape("argmax", 1), None)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"bases": 3, "devices": "names"}, "policy.bases: the base is an observation"),
        ({"grouper": "scheduled", "devices": "observed"}, "policy.grouper: 'scheduled' groups need a base schedule"),
        ({"rounds": 2, "devices": "observed"}, "policy.rounds: later rounds observe a base schedule"),
    ],
)
def test_knobs_that_need_a_base_say_so(knobs, message):
    with pytest.raises(ValueError, match=message):
        HierarchicalConfig(**knobs)


def test_a_group_goes_nowhere_where_its_work_takes_twice_as_long_as_the_step():
    """The second device is fifty times as slow: nothing may go there, but what stands there may stay."""
    ops = [op(f"o{i}", time_ns=0) for i in range(4)]
    ops = [replace(each, time_ns={"gpu:0": 100, "gpu:1": 5_000}) for each in ops]
    posed = problem(ComputationGraph.from_ops("g", ops, []), equal_gpus(2))
    alone = base_on(posed, [0, 0, 0, 0])
    assert useless(alone.rows(np.arange(4), 4)).tolist() == [[False, True]] * 4
    slow = base_on(posed, [0, 0, 0, 1])
    assert not useless(slow.rows(np.arange(4), 4))[by_unit(posed, range(4)) == 3].any()
    policy = policy_of(posed, base_logit=0.0)
    for placement, _ in sampled(policy, posed, 8, simulate, torch.Generator().manual_seed(0)):
        assert placement.device.tolist() == [0, 0, 0, 0]


def test_rounds_are_learned_from_all_samples_at_once():
    """One sample alone, or a part of them, would observe another base than the one that they were drawn with."""
    posed = chains(2, 2, 2)
    for algorithm, knob in ((ReinforceConfig(self_imitation=1.0), "self_imitation"), (PpoConfig(minibatches=2), "minibatches")):
        with pytest.raises(ValueError, match=rf"algorithm\.{knob}: later rounds"):
            Learning(TrainingConfig(placements=4), algorithm).of(policy_of(posed, rounds=2))
        Learning(TrainingConfig(placements=4), algorithm).of(policy_of(posed))


def test_candidates_of_several_micro_batches_have_several_orders_and_the_policy_keeps_the_base_s():
    posed = gp.problem("squeezenet", cluster="k40-4", micro_batches=4)
    policy = policy_of(posed, bases=12)
    tried = candidates(posed, units(posed.graph, "ops"), 12, "depth")
    assert [each.schedule for each in tried] == ["depth"] * (1 + len(FIRST)) + [*ORDERS, *ORDERS[:3]]
    best = min(simulate(posed, tried), key=lambda result: result.step_time_ns)
    order = tried[[result.step_time_ns for result in simulate(posed, tried)].index(best.step_time_ns)].schedule
    placement, _, _ = decode(policy, posed, simulate)
    assert placement.schedule == order in ORDERS
