"""HSDAG: episodes, what the tape keeps, what it learns, and the optimum of ops that are fast on one device each."""

import dataclasses
from functools import partial

import pytest
import torch
from support.graphs import equal_gpus, op
from support.learners import learner, settings

from gnnplace.config.algorithms import PpoConfig, ReinforceConfig
from gnnplace.config.training import CreditConfig
from gnnplace.costs.roofline import problem as roofline
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.policies import registry
from gnnplace.policies.hsdag.policy import HsdagConfig
from gnnplace.policies.tape import Decisions, Tape
from gnnplace.simulator.simulator import simulate
from gnnplace.testing import CHECKS, branches, built, check_policy
from gnnplace.training.run.assemble import fit
from gnnplace.training.update.rollout import replay, rollout


def policy_of(problem, seed=0, **knobs):
    config = HsdagConfig(**{"steps": 3, "width": 16} | knobs)
    return registry.build(config, config.shape([problem]), 1, seed)


def taught(problem, algorithm=None, evaluate=simulate, seed=0, knobs=None, **training):
    """A learner of the policy, compared sample with sample, each step by its own reward."""
    credit = CreditConfig(returns="own", initial=15.0)
    config = settings(**{"credit": credit, "lr": 1e-2, "greedy_every": 1000} | training)
    return learner(
        [problem], config, policy=policy_of(problem, **knobs or {}), algorithm=algorithm or ReinforceConfig(decisions="sum"),
        evaluate=evaluate, seed=seed,
    )  # fmt: skip


def sampled(policy, problem, samples=4, seed=0, evaluate=None):
    tape = Tape("sample", samples, torch.Generator().manual_seed(seed))
    return tape, rollout(policy, problem, tape, evaluate)


def ladder(length):
    """A graph whose ops feed the next two, on two devices: no op joins another."""
    pairs = [(i, 0, i + step) for i in range(length) for step in (1, 2) if i + step < length]
    return roofline(ComputationGraph.from_ops("ladder", [op(f"o{i}") for i in range(length)], pairs), equal_gpus(2))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_all_knobs_together_keep_the_promises(check):
    knobs = {"levels": 2, "dropout": 0.3, "coarsening": "code", "features": "code"}
    check(partial(built, HsdagConfig(steps=2, width=8, encoder_width=8, **knobs)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "knobs",
    [{"levels": 2}, {"coarsening": "code", "features": "code"}, {"dropout": 0.3}, {"levels": 3, "dropout": 0.5, "features": "code"}],
    ids=str,
)
def test_every_knob_keeps_the_promises(knobs):
    check_policy(HsdagConfig(**{"steps": 2, "width": 8} | knobs))


def test_every_step_of_an_episode_is_evaluated_and_grows_the_columns():
    problem = branches()
    policy = policy_of(problem, steps=4)
    tape, episode = sampled(policy, problem, evaluate=simulate)
    assert len(episode) == len(tape.steps) == 4 and all(len(step.results) == 4 for step in episode)
    state = policy.reset(problem, 1)
    _, following = policy.step(state, Tape("argmax", 1), None)
    grown = following.added
    assert (grown >= 0).all() and grown.sum() > 0 and not grown.requires_grad  # the last layer is a ReLU
    group = policy.network(policy.encoder(state.constants), state.edges, lambda level, best: best, lambda rows: rows).group
    for number in range(int(group.max()) + 1):
        members = grown[group == number]
        torch.testing.assert_close(members, members[:1].expand_as(members))  # what their group made of them


def test_groups_are_no_matter_of_chance():
    tape, _ = sampled(policy_of(branches()), branches())
    assert {name for step in tape.steps for name in step} == {"edges of level 0", "device"}
    assert all(len(step["edges of level 0"].choice()) == 1 for step in tape.steps)  # shared by all samples
    assert tape.by_step(Decisions.entropy, ["edges of level 0"]).abs().sum() == 0
    torch.testing.assert_close(tape.log_probability(), tape.by_step(Decisions.log_probability, ["device"]).sum(0))


def test_dropout_is_of_samples_and_replayed_and_greedy_has_none():
    problem = branches()
    policy = policy_of(problem, dropout=0.4)
    tape, episode = sampled(policy, problem)
    assert len({int(step["zeroes"].choice()) for step in tape.steps}) > 1
    torch.testing.assert_close(replay(policy, problem, tape, episode).tape.log_probability(), tape.log_probability())
    dry = policy_of(problem)
    dry.load_state_dict(policy.state_dict())
    greedy, without = Tape("argmax", 1), Tape("argmax", 1)
    rollout(policy, problem, greedy, None)
    rollout(dry, problem, without, None)
    for one, other in zip(greedy.steps, without.steps, strict=True):
        assert int(one["zeroes"].choice()) == 0
        torch.testing.assert_close(one["device"].logits[0], other["device"].logits[0])


def one_op(fast):
    """One op on two devices; it lasts 100 ns on device `fast`, 1000 ns on the other."""
    only = dataclasses.replace(op("a"), time_ns={"gpu:0": 1000, "gpu:1": 1000, f"gpu:{fast}": 100})
    return roofline(ComputationGraph.from_ops("one", [only], []), equal_gpus(2))


def probability(policy, problem, device):
    tape = Tape("argmax", 1)
    rollout(policy, problem, tape, None)
    return [float(torch.softmax(step["device"].logits[0], -1)[0, 0, device]) for step in tape.steps]


@pytest.mark.parametrize("fast", [0, 1])
def test_an_update_makes_the_faster_device_more_probable_in_every_step(fast):
    problem = one_op(fast)
    made = taught(problem, updates=1, samples=16)
    before = probability(made.policy, problem, fast)
    fit(made)
    assert all(later > earlier for earlier, later in zip(before, probability(made.policy, problem, fast), strict=True))


def test_as_published_the_faster_device_is_learned_without_a_baseline():
    credit = CreditConfig(returns="own", gamma=0.95, baseline="none", initial=None, normalise=False)
    reward = dataclasses.replace(settings().reward, kind="inverse", overflow=0.0)
    problem = one_op(1)
    made = taught(problem, updates=12, samples=1, lr=0.03, credit=credit, reward=reward, knobs={"dropout": 0.2, "steps": 4})
    fit(made)
    assert min(probability(made.policy, problem, 1)) > 0.9


def two_ladders():
    """A ladder of each kind, which is ten times as fast on its own device; both at once take 600 ns, on one device 6,600."""
    fast = {"MatMul": "gpu:0", "Relu": "gpu:1"}
    ops = [Op(f"{kind}{i}", kind, (Output(0),), time_ns={"gpu:0": 1000, "gpu:1": 1000, fast[kind]: 100}) for kind in fast for i in range(6)]
    pairs = [(first + i, 0, first + i + step) for first in (0, 6) for i in range(6) for step in (1, 2) if i + step < 6]
    return roofline(ComputationGraph.from_ops("ladders", ops, pairs), equal_gpus(2))


@pytest.mark.parametrize(
    "algorithm", [PpoConfig(epochs=3, minibatches=2), ReinforceConfig(self_imitation=0.5)], ids=["ppo", "self-imitation"]
)
def test_samples_are_learned_from_again_after_the_weights_and_with_them_the_groups_have_changed(algorithm):
    problem = two_ladders()
    made = taught(problem, algorithm, updates=2, lr=0.05, knobs={"steps": 2})
    before = policy_of(problem, steps=2).network.state_dict()
    fit(made)
    assert any(not torch.equal(value, before[name]) for name, value in made.policy.network.state_dict().items())
    assert all(value.isfinite().all() for value in made.policy.state_dict().values())


def test_all_cannot_drop_out():
    with pytest.raises(ValueError, match=r"policy\.dropout: 1\.0 is not at least 0 and below 1"):
        HsdagConfig(dropout=1.0)
