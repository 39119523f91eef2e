"""What every policy learns, with each of its encoders: what was faster, nothing where all took the same time, and a known optimum."""

from dataclasses import replace

import pytest
import torch
from support.graphs import equal_gpus
from support.learners import REINFORCE, learner, settings
from support.slow import slow
from support.small_policies import ENCODED

from gnnplace import testing
from gnnplace.config.algorithms import PpoConfig
from gnnplace.config.training import CreditConfig
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.policies import registry
from gnnplace.policies.protocol import Critic
from gnnplace.policies.tape import Tape
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.assemble import fit
from gnnplace.training.update.algorithms.loss import reinforce
from gnnplace.training.update.credit import Credit, leave_one_out
from gnnplace.training.update.rollout import decode, replay, rollout

LENGTH, FAST_NS, SLOW_NS = 4, 100, 1000
MOVING_AVERAGE = CreditConfig(baseline="moving-average", initial=None, normalise=False)
CREDIT = {
    "placeto": CreditConfig(returns="improvement"),
    "hsdag": CreditConfig(returns="own", initial=15.0),
}
"""Policies whose episodes have several steps learn what each was worth."""
TRAINING = {
    "hierarchical-paper": ({"groups": 4}, {"updates": 25, "samples": 8, "credit": MOVING_AVERAGE}),
    "hierarchical-gnn": ({"groups": 4, "encoder_width": 16, "devices": "observed"}, {"updates": 20, "groupings": 8, "samples": 2}),
    "colocrl-paper": ({}, {"updates": 30, "samples": 8, "credit": MOVING_AVERAGE}),
    "colocrl-gnn": ({}, {"updates": 12, "samples": 16}),
    "unit-placer-gnn": ({}, {"updates": 8, "samples": 16}),
    "unit-placer-paper": ({}, {"updates": 8, "samples": 16}),
    "improver-None": ({}, {"updates": 3, "samples": 8}),
    "placeto-gnn": ({}, {"updates": 16, "samples": 12}),
    "hsdag-paper": ({"width": 32}, {"updates": 12, "samples": 16, "lr": 0.003}),
    "hsdag-gnn": ({"width": 32}, {"updates": 16, "samples": 16, "lr": 0.003}),
    "go-paper": ({"iterations": 1}, {"updates": 20, "samples": 16, "lr": 0.01}),
    "go-gnn": ({"iterations": 1}, {"updates": 20, "samples": 16, "lr": 0.01}),
}
"""Knobs and settings with which each finds the optimum within a second, from each of three seeds."""


def named(config):
    return f"{config.kind}-{config.encodes_with}"


def ladders():
    """Two separate ladders, of products and of convolutions, each ten times as fast on a device of its own.

    Both at once take 400 ns, all on one device 4400. An op feeds the next two, so that no rule makes one unit of a ladder.
    """
    fast = {"matmul": "gpu:0", "conv": "gpu:1"}
    ops = [
        Op(f"{kind}{i}", kind, (Output(0),), canonical_kind=kind, time_ns={"gpu:0": SLOW_NS, "gpu:1": SLOW_NS, fast[kind]: FAST_NS})
        for kind in fast
        for i in range(LENGTH)
    ]
    edges = [(first + i, 0, first + j) for first in (0, LENGTH) for i in range(LENGTH) for j in (i + 1, i + 2) if j < LENGTH]
    return problem(ComputationGraph.from_ops("ladders", ops, edges), equal_gpus(2))


EXACT = {"hierarchical-paper", "colocrl-paper", "colocrl-gnn", "unit-placer-gnn", "unit-placer-paper", "improver-None"}
"""Policies whose log-probability is smooth in all weights that a step moves.

The others hold something fixed in the backward pass (embeddings under a grouping, columns of the step before) or have many ReLUs
whose sign may change, so their gain differs by a few per cent.
"""


def gain_of_a_step(policy, of, tape, episode, credit, small=1e-3):
    """How much log-probability each sample gains by a step along the policy gradient that should gain `small`.

    To first order the mean of advantage x gain is the rate times the squared norm of the gradient. Half the difference of a step forwards
    and a step backwards leaves out the second order.
    """
    policy.zero_grad()
    reinforce(replay(policy, of, tape, episode), credit).backward()
    weights = [weight for weight in policy.parameters() if weight.grad is not None]
    begin = [weight.detach().clone() for weight in weights]
    rate = small / sum(weight.grad.double().square().sum() for weight in weights)

    @torch.no_grad()
    def after(rate):
        for weight, value in zip(weights, begin, strict=True):
            weight.copy_(value - rate * weight.grad)
        return replay(policy, of, tape, episode).tape.log_probability().double()

    gain = (after(rate) - after(-rate)) / 2
    after(0.0)
    return gain


@pytest.mark.parametrize("config", ENCODED, ids=named)
def test_an_update_favours_the_faster_placements(config):
    """All samples together, the fastest alone and the slowest alone gain as much as the policy gradient says."""
    of, small = ladders(), 1e-3
    policy, tape = testing.built(config, of), Tape("sample", 8, torch.Generator().manual_seed(0))
    episode = rollout(policy, of, tape, simulate)
    reward = -torch.tensor([[result.step_time_ns / FAST_NS for result in episode[-1].results]], dtype=torch.float64).log()
    returns = reward.expand(len(episode), -1)
    advantage = leave_one_out(returns, torch.ones_like(returns, dtype=torch.bool))
    best, worst = int(reward.argmax()), int(reward.argmin())
    assert advantage[0, best] > 0 > advantage[0, worst]
    for samples in (range(8), [best], [worst]):
        counts = torch.zeros_like(returns, dtype=torch.bool)
        counts[:, list(samples)] = True
        gain = gain_of_a_step(policy, of, tape, episode, Credit(returns, advantage, advantage, counts), small)
        gained = float((advantage[0] * gain)[list(samples)].mean())
        assert gained == pytest.approx(small, rel=0.02 if named(config) in EXACT else 0.3)


def alike(of, placements, *, timeline=False):
    """An evaluator for which every step takes the same time."""
    return tuple(replace(result, step_time_ns=FAST_NS) for result in simulate(of, placements, timeline=timeline))


@pytest.mark.parametrize("config", ENCODED, ids=named)
def test_equal_steps_teach_nothing_but_what_to_expect(config):
    of = ladders()
    policy = testing.built(config, of)
    before = {name: weight.clone() for name, weight in policy.named_parameters()}
    training = settings(updates=2, groupings=2, samples=2, credit=CREDIT.get(config.kind, CreditConfig()))
    algorithm = PpoConfig() if isinstance(policy, Critic) else REINFORCE
    fit(learner([of], training, policy=policy, algorithm=algorithm, evaluate=alike))
    changed = {name for name, weight in policy.named_parameters() if not torch.equal(weight, before[name])}
    assert all(name.startswith("critic") for name in changed) and bool(changed) == isinstance(policy, Critic)


IN_CORE = (
    "hierarchical-paper",
    "hierarchical-gnn",
    "colocrl-paper",
    "unit-placer-gnn",
    "improver-None",
    "placeto-gnn",
    "hsdag-paper",
    "go-paper",
)


@pytest.mark.parametrize("seed", [0, slow(1), slow(2)])
@pytest.mark.parametrize("config", [config if named(config) in IN_CORE else slow(config) for config in ENCODED], ids=named)
def test_training_finds_the_device_of_each_kind(config, seed):
    of = ladders()
    knobs, training = TRAINING[named(config)]
    training = settings(**{"lr": 0.02, "greedy_every": 1000, "credit": CREDIT.get(config.kind, CreditConfig())} | training)
    config = replace(config, **knobs)
    policy = registry.build(config, config.shape([of]), training.groupings, seed)
    fit(learner([of], training, policy=policy))
    assert decode(policy, of, simulate)[1].feasible_ns == LENGTH * FAST_NS
