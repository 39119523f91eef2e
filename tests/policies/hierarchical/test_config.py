"""The hierarchical policy: sharing of groupings, legality, what replay scores, and learning of a known optimum."""

import gc

import pytest
import torch
from support.graphs import chains, equal_gpus
from support.learners import learner, settings
from support.scores import chosen_by_hand, perturb, placed_by_hand

from gnnplace.config.training import GroupingConfig
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.placement import check
from gnnplace.policies.encoders.kinds import Vocabulary, vocabulary
from gnnplace.policies.encoders.paper import PaperGroups, PaperOps
from gnnplace.policies.hierarchical.fixed import ClusteredGrouping, RandomGrouping
from gnnplace.policies.hierarchical.grouper import Grouper
from gnnplace.policies.hierarchical.policy import Hierarchical
from gnnplace.policies.placing.placer import Seq2Seq
from gnnplace.policies.placing.turns import group_allowed, soft_placement
from gnnplace.policies.tape import Tape
from gnnplace.training.update.rollout import replay, rollout


def planner(of, groups=4, grouper=None, width=16, **switches):
    torch.manual_seed(0)
    kinds = vocabulary([of.graph])
    ops, embed = PaperOps(kinds), PaperGroups(kinds, groups)
    return Hierarchical(
        op_encoder=ops if grouper is None else None,
        grouper=grouper or Grouper(ops.width, groups),
        group_encoder=embed,
        placer=Seq2Seq(embed.width, of.num_devices, width=width),
        **switches,
    )


def sampled(policy, of, samples, seed=0, noise=0.0):
    tape = Tape("sample", samples, torch.Generator().manual_seed(seed), noise)
    return tape, rollout(policy, of, tape, None)[-1].placements


@pytest.mark.parametrize(("groupings", "samples"), [(1, 4), (2, 6), (3, 3)])
def test_samples_of_one_grouping_place_its_groups(groupings, samples):
    of = chains(3, 4, 2)
    tape, placements = sampled(planner(of, groupings=groupings), of, samples)
    grouping, device = tape.steps[0]["group"].choice(), tape.steps[0]["device"].choice()
    assert grouping.shape == (groupings, 12) and device.shape == (samples, 4)
    policy_units = planner(of).reset(of, 1).units.unit
    for j, placement in enumerate(placements):
        groups = grouping[j // (samples // groupings)].numpy()[policy_units]
        assert placement.device.tolist() == device[j].numpy()[groups].tolist()


def test_groupings_divide_the_samples():
    of = chains(2, 2, 2)
    policy = planner(of, groupings=3)
    for samples, groupings in ((1, 1), (4, 1), (6, 3), (9, 3)):
        assert len(sampled(policy, of, samples)[0].steps[0]["group"].choice()) == groupings


def test_replay_scores_the_sampled_groups_and_devices_by_both_softmaxes():
    """Under other weights than those that sampled, a sample's log-probability is that of its grouping plus that of its devices.

    The noise of sampling is added to the logits of both, and the samples of one grouping share the log-probability of that grouping.
    """
    of = chains(2, 4, 2)
    policy = planner(of, groupings=2)
    tape, _ = sampled(policy, of, 4, noise=0.5)
    perturb(policy)
    state, group, device = policy.reset(of, 4), tape.steps[0]["group"], tape.steps[0]["device"]
    embeddings = policy.op_encoder(state.ops)
    of_groups = chosen_by_hand(policy.grouper(embeddings).expand(2, -1, -1) + group.noise(), group.choice())
    encoded = policy.placer.encode(policy.group_encoder(state.groups, group.choice(), embeddings))
    by_hand = of_groups.repeat_interleave(2) + placed_by_hand(policy.placer, encoded, device)
    scored = replay(policy, of, tape).tape.log_probability()
    assert (scored - tape.log_probability()).abs().min() > 1e-3
    torch.testing.assert_close(scored, by_hand, rtol=1e-5, atol=1e-4)


def test_a_group_may_stand_where_all_its_members_may():
    legal = torch.tensor([[True, True, False], [False, True, True], [True, False, False], [True, True, True]])
    grouping = torch.tensor([[0, 0, 2, 2], [1, 2, 1, 1]])
    assert group_allowed(grouping, legal, 3).tolist() == [
        [[False, True, False], [True, True, True], [True, False, False]],
        [[True, True, True], [True, False, False], [False, True, True]],
    ]


def test_a_group_whose_members_share_no_device_is_placed_softly():
    legal = torch.tensor([[True, False, False], [False, False, True]])
    assert group_allowed(torch.tensor([[0, 0]]), legal, 1).tolist() == [[[True, False, True]]]
    device = soft_placement(torch.tensor([[0, 0], [2, 2]]), legal)
    assert device.tolist() == [[0, 2], [0, 2]]


def test_units_without_a_common_device_are_refused_by_name():
    ops = [Op(name, "Op", (), time_ns={f"gpu:{i}": 1}, colocation="w") for i, name in enumerate("ab")]
    of = problem(ComputationGraph.from_ops("g", ops, []), equal_gpus(2))
    with pytest.raises(ValueError, match="op 'a'"):
        planner(of).reset(of, 1)


def test_colocation_groups_stay_together():
    ops = [Op(f"o{i}", "Op", (Output(4),), colocation=f"w{i % 3}") for i in range(12)]
    of = problem(ComputationGraph.from_ops("g", ops, [(i, 0, i + 1) for i in range(11)]), equal_gpus(3))
    for placement in sampled(planner(of), of, 16)[1]:
        assert check(of, placement) is None


def test_empty_groups_get_a_device_too():
    of = chains(1, 2, 2)
    tape, _ = sampled(planner(of, groups=9), of, 2)
    assert tape.steps[0]["device"].choice().shape == (2, 9)


@pytest.mark.parametrize("fixed", [RandomGrouping(4, seed=3), ClusteredGrouping(4)])
def test_a_fixed_grouping_stays_while_the_placer_learns(fixed):
    of = chains(3, 4, 2)
    policy = planner(of, grouper=fixed)
    tape, placements = sampled(policy, of, 8)
    assert list(tape.steps[0]) == ["device"] and not policy.learns_groups
    units = policy.reset(of, 1).units
    groups = fixed.reads(of, units)[0].numpy()[units.unit]
    for placement in (*placements, *sampled(policy, of, 8, seed=1)[1]):
        for group in range(4):
            assert len(set(placement.device[groups == group].tolist())) <= 1


def test_fixed_groups_cannot_be_taught():
    of = chains(3, 4, 2)
    with pytest.raises(ValueError, match=r"training\.grouping\.updates: the groups of this Hierarchical are fixed"):
        learner([of], settings(grouping=GroupingConfig(updates=1)), policy=planner(of, grouper=ClusteredGrouping(4)))


def test_a_learned_grouper_needs_op_embeddings():
    with pytest.raises(ValueError, match="op_encoder"):
        Hierarchical(op_encoder=None, grouper=Grouper(57, 2), group_encoder=PaperGroups(Vocabulary(()), 2), placer=Seq2Seq(28, 2, width=4))


def test_constants_of_a_problem_are_kept_while_it_lives():
    of = chains(2, 2, 2)
    policy = planner(of)
    assert policy.reset(of, 2).ops is policy.reset(of, 4).ops
    del of
    gc.collect()
    assert len(policy._constants) == 0


def test_schedule_is_that_of_the_constructor():
    of = chains(1, 2, 2)
    assert [sampled(planner(of, **switch), of, 1)[1][0].schedule for switch in ({}, {"schedule": "fifo"})] == ["critical-path", "fifo"]


def test_sharpness_multiplies_the_logits_of_groups_but_not_of_their_pre_training():
    of = chains(2, 3, 2)
    policy = planner(of)
    policy.grouper.sharpness = 4.0
    tape, _ = sampled(policy, of, 2)
    alone = Tape("argmax", 1)
    policy.group(policy.reset(of, 1), alone)
    plain, sharp = alone.steps[0]["group"].logits[0], tape.steps[0]["group"].logits[0]
    torch.testing.assert_close(sharp, 4 * plain)
    torch.testing.assert_close(replay(policy, of, tape).tape.log_probability(), tape.log_probability())
