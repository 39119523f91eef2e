"""The hierarchical policy: sharing of groupings, legality, what replay scores, and learning of a known optimum."""

import gc

import numpy as np
import pytest
import torch
from support.graphs import chains, equal_gpus
from support.slow import slow

from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.placement import check
from gnnplace.policies.encoders.kinds import Vocabulary, vocabulary
from gnnplace.policies.encoders.paper import PaperGroups, PaperOps
from gnnplace.policies.hierarchical.grouper import Grouper, RandomGrouping
from gnnplace.policies.hierarchical.policy import Hierarchical
from gnnplace.policies.hierarchical.ungrouped import Ungrouped
from gnnplace.policies.placing.placer import Seq2Seq
from gnnplace.policies.placing.turns import group_allowed, soft_placement
from gnnplace.policies.tape import Tape
from gnnplace.simulator.simulator import simulate
from gnnplace.training.update.algorithms.loss import reinforce
from gnnplace.training.update.credit import Credit, MovingAverage
from gnnplace.training.update.reward import negative_square_root
from gnnplace.training.update.rollout import greedy, replay, rollout


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


def specialists(count=8):
    """A chain of two kinds of op; each device is five times faster at one of them: the optimum parts the kinds, without memory or load."""
    ops = [Op(f"o{i}", "AB"[i % 2], (Output(10),), time_ns={f"gpu:{i % 2}": 10**8, f"gpu:{1 - i % 2}": 5 * 10**8}) for i in range(count)]
    return problem(ComputationGraph.from_ops("specialists", ops, [(i, 0, i + 1) for i in range(count - 1)]), equal_gpus(2))


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


def test_replay_scores_the_measured_choices_under_new_weights():
    of = specialists()
    policy = planner(of, groupings=2)
    tape, _ = sampled(policy, of, 4, noise=0.5)
    torch.testing.assert_close(replay(policy, of, tape).tape.log_probability(), tape.log_probability(), rtol=1e-5, atol=1e-4)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    scored = replay(policy, of, tape).tape
    assert (scored.log_probability() - tape.log_probability()).abs().min() > 1e-3
    grouping, device = tape.steps[0]["group"], tape.steps[0]["device"]
    state = policy.reset(of, 4)
    embeddings = policy.op_encoder(state.ops)
    of_groups = (policy.grouper(embeddings) + grouping.noise()).log_softmax(-1).gather(-1, grouping.choice().unsqueeze(-1)).sum((1, 2))
    encoded = policy.placer.encode(policy.group_encoder(state.groups, grouping.choice(), embeddings))
    seen = []
    policy.placer.write(encoded, 4, lambda step, logits: (seen.append(logits), device.choice()[:, step])[1])
    of_devices = (torch.stack(seen, 1) + device.noise()).log_softmax(-1).gather(-1, device.choice().unsqueeze(-1)).sum((1, 2))
    torch.testing.assert_close(scored.log_probability(), of_groups.repeat_interleave(2) + of_devices, rtol=1e-5, atol=1e-4)


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


def test_a_random_grouping_stays_while_the_placer_learns():
    of = chains(3, 4, 2)
    policy = planner(of, grouper=RandomGrouping(4, seed=3))
    tape, placements = sampled(policy, of, 8)
    assert list(tape.steps[0]) == ["device"]
    groups = RandomGrouping(4, seed=3).draw(12)[0].numpy()[policy.reset(of, 1).units.unit]
    for placement in (*placements, *sampled(policy, of, 8, seed=1)[1]):
        for group in range(4):
            assert len(set(placement.device[groups == group].tolist())) <= 1


def test_another_number_of_devices_is_refused():
    policy = planner(chains(1, 2, 2))
    with pytest.raises(ValueError, match="3 devices, but this policy places on 2"):
        policy.reset(chains(1, 2, 3), 1)
    ops = PaperOps(Vocabulary(("Op",)))
    with pytest.raises(ValueError, match="3 devices, but this policy places on 2"):
        Ungrouped(op_encoder=ops, network=Grouper(ops.width, 2)).reset(chains(1, 2, 3), 1)


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


def credit_of(results, average):
    """The paper's: minus the root of the seconds, over the moving average."""
    reward = torch.tensor([[negative_square_root(result) for result in results]], dtype=torch.float64)
    counts = torch.ones_like(reward, dtype=torch.bool)
    return Credit(reward, average.advantage(reward, counts), counts)


def update(policy, of, optimizer, average, generator, noise):
    tape = Tape("sample", 4, generator, noise)
    credit = credit_of(simulate(of, rollout(policy, of, tape, None)[-1].placements), average)
    optimizer.zero_grad()
    reinforce(replay(policy, of, tape), credit).backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()


def test_an_update_favours_the_faster_placements():
    """With the mean of the samples as baseline, the log-probability of the fastest rises relative to that of the slowest."""
    of = specialists()
    policy = planner(of, groupings=4)
    tape, placements = sampled(policy, of, 4, seed=5)
    credit = credit_of(simulate(of, placements), MovingAverage(initial=None))
    reward = credit.returns[0]
    assert reward.max() > reward.min()
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
    reinforce(replay(policy, of, tape), credit).backward()
    optimizer.step()
    gain = (replay(policy, of, tape).tape.log_probability() - tape.log_probability()).detach()
    assert gain[reward.argmax()] > 0 > gain[reward.argmin()]


@pytest.mark.parametrize(("updates", "rate"), [(80, 1e-2), slow(400, 3e-3)])
def test_reaches_the_optimum_with_the_papers_m_and_k(updates, rate):
    """One grouping, four placements, moving average, noise first, clipping; only the learning rate is smaller."""
    of = specialists()
    policy = planner(of)
    optimizer, average, generator = torch.optim.Adam(policy.parameters(), lr=rate), MovingAverage(), torch.Generator().manual_seed(0)
    for step in range(updates):
        update(policy, of, optimizer, average, generator, noise=0.1 if step < updates // 4 else 0.0)
    placement = greedy(policy)(of)
    assert np.array_equal(placement.device, np.arange(8) % 2)
    assert simulate(of, [placement])[0].step_time_ns == 8 * 10**8 + 7 * 10


def test_sharpness_multiplies_the_logits_of_groups_but_not_of_their_pre_training():
    of = chains(2, 3, 2)
    policy = planner(of, sharpness=4.0)
    tape, _ = sampled(policy, of, 2)
    alone = Tape("argmax", 1)
    policy.group(policy.reset(of, 1), alone)
    plain, sharp = alone.steps[0]["group"].logits[0], tape.steps[0]["group"].logits[0]
    torch.testing.assert_close(sharp, 4 * plain)
    torch.testing.assert_close(replay(policy, of, tape).tape.log_probability(), tape.log_probability())
