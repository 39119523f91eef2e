"""A base schedule as an observation: its rows are the features of moves, it is the best of its candidates, and no sample of a policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.graphs import chains, equal_gpus, op
from support.observing import policy_of

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
from gnnplace.policies.placing.base import BASE_OBSERVATIONS, STAYS, best_base, useless
from gnnplace.policies.tape import Tape
from gnnplace.simulator.simulator import simulate
from gnnplace.training.update.learning import Learning
from gnnplace.training.update.rollout import evaluated, rollout, sampled
from gnnplace.units.units import units


def base_on(posed, device):
    """The base of one placement, and its devices."""
    placement = Placement(np.array(device, np.int32))
    return best_base(posed, units(posed.graph, "ops"), [placement], simulate(posed, [placement], timeline=True))


def by_unit(posed, of_op):
    """What the op of each unit has: units are numbered in topological order."""
    value = np.zeros(posed.num_ops, np.int64)
    value[units(posed.graph, "ops").unit] = of_op
    return value


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


def test_a_later_round_observes_the_best_placement_so_far():
    posed = chains(4, 3, 3)
    policy = policy_of(posed, rounds=3)
    episode = rollout(policy, posed, Tape("sample", 6, torch.Generator().manual_seed(1)), simulate)
    assert [step.looks for step in episode] == [True, False, False, False]
    assert len(evaluated(episode)) == 18
    state = policy.reset(posed, 6)
    for step in episode[:2]:
        state = policy._with_base(state, step.placements, step.results)
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
