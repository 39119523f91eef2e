"""The unit placer: symmetry, devices it never saw, imitation, and the optimum of independent chains."""

import pytest
import torch
from support.graphs import chains
from support.learners import learner, settings
from support.slow import slow

from gnnplace.config.algorithms import ReinforceConfig
from gnnplace.config.training import TrainingConfig
from gnnplace.policies.tape import Tape
from gnnplace.policies.unit_placer.policy import UnitPlacer, UnitPlacerConfig
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.assemble import fit
from gnnplace.training.run.learner import Learner
from gnnplace.training.update.best import BestPlacements
from gnnplace.training.update.learning import Learning
from gnnplace.training.update.lesson import Lesson
from gnnplace.training.update.rollout import greedy, rollout


def placer(**switches):
    torch.manual_seed(0)
    return UnitPlacer(UnitPlacerConfig(**{"units": "ops", "width": 16, "rounds": 2, "hidden": 16} | switches))


@pytest.mark.parametrize("count", [slow(2), slow(3), slow(4)])
def test_greedy_uses_all_devices_on_independent_chains(count):
    problem, policy = chains(count, 4, count), placer()
    fit(learner([problem], settings(updates=60, lr=1e-2, samples=16, greedy_every=1000), policy=policy))
    placement = greedy(policy)(problem)
    assert simulate(problem, [placement])[0].step_time_ns == 4 * 1000
    assert len(set(placement.device.tolist())) == count


def test_weights_place_any_number_of_devices():
    policy = placer()
    for devices in (1, 2, 5):
        placement = greedy(policy)(chains(3, 2, devices))
        assert placement.device.max() < devices


def test_first_decision_cannot_tell_equal_devices_apart():
    tape = Tape("argmax", 1)
    rollout(placer(), chains(3, 2, 3), tape, None)
    assert torch.allclose(tape.steps[0]["device"].logits[0], tape.steps[0]["device"].logits[0][..., :1])


def test_without_state_features_loads_are_not_seen():
    tape = Tape("argmax", 1)
    rollout(placer(state_features=False), chains(2, 3, 2), tape, None)
    for logits in tape.steps[0]["device"].logits:
        assert torch.allclose(logits, logits[..., :1])


def test_without_rounds_neighbours_do_not_matter():
    policy = placer(rounds=0)
    linked = policy.reset(chains(2, 3, 2), 1)
    embedding = policy.op_encoder(linked.features)
    alone = policy.op_encoder.encoder(linked.features.node[:1], linked.features.edges[:, :0], linked.features.edge[:0])
    torch.testing.assert_close(embedding[:1], alone)


def test_features_beyond_those_of_training_are_clamped_to_them():
    seen, other = chains(2, 3, 2), chains(4, 5, 3)
    policy = placer()
    before = greedy_logits(policy, other)
    policy.widen_ranges([seen])
    assert not torch.allclose(greedy_logits(policy, other), before)
    node = policy.reset(seen, 1).features.node
    torch.testing.assert_close(policy.op_encoder.encoder.node_range(node), node)
    clamped = policy.op_encoder.encoder.node_range(policy.reset(other, 1).features.node)
    assert (clamped >= node.amin(0)).all() and (clamped <= node.amax(0)).all()


def test_training_shows_the_policy_its_problems():
    policy, problem = placer(), chains(2, 3, 2)
    learning = Learning(TrainingConfig(updates=1, placements=2), ReinforceConfig())
    fit(Learner(policy, [Lesson(problem, 1)], learning, simulate, BestPlacements(1, lambda *best: None)))
    torch.testing.assert_close(policy.op_encoder.encoder.node_range.highest, policy.reset(problem, 1).features.node.amax(0))


def greedy_logits(policy, problem):
    tape = Tape("argmax", 1)
    rollout(policy, problem, tape, None)
    return torch.stack(tape.steps[0]["device"].logits[:1])


def test_a_checkpoint_without_message_passing_has_no_rounds():
    assert UnitPlacerConfig.migrated({"width": 8, "rounds": 3, "message_passing": False}) == {"width": 8, "rounds": 0}
    assert UnitPlacerConfig.migrated({"rounds": 3, "message_passing": True}) == UnitPlacerConfig.migrated({"rounds": 3}) == {"rounds": 3}
