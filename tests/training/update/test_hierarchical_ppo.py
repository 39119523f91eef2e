"""PPO with the hierarchical policy: the ratio is of grouping and placing together; signs, ratios, minibatches, resuming, the optimum."""

import dataclasses

import numpy as np
import pytest
import torch
from lightning import Callback
from safetensors.torch import load_file
from support.graphs import chains, equal_gpus
from support.learners import ignore, learner, settings
from support.slow import slow

from gnnplace.config.algorithms import PpoConfig
from gnnplace.config.training import CreditConfig, ExplorationConfig, GroupingConfig
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.policies import registry
from gnnplace.policies.hierarchical.config import ENCODERS, HierarchicalConfig
from gnnplace.policies.tape import Decisions, Tape
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.assemble import fit
from gnnplace.training.run.checkpoint import FILE
from gnnplace.training.update import experience, learning
from gnnplace.training.update.algorithms.loss import ppo, reinforce
from gnnplace.training.update.lesson import Lesson
from gnnplace.training.update.rollout import replay

SMALL = {"groups": 4, "width": 16, "encoder_width": 16, "encoder_rounds": 2, "sharpness": 2.0}
KINDS = [("paper", "names"), ("paper", "observed"), ("gnn", "names"), ("gnn", "observed")]


def specialists(count=8):
    """A chain of two kinds of op; each GPU is five times faster at one of them: the optimum parts the kinds."""
    ops = [
        Op(
            f"o{i}",
            ("matmul", "conv")[i % 2],
            (Output(10),),
            canonical_kind=("matmul", "conv")[i % 2],
            time_ns={f"gpu:{i % 2}": 10**8, f"gpu:{1 - i % 2}": 5 * 10**8},
        )
        for i in range(count)
    ]
    return problem(ComputationGraph.from_ops("specialists", ops, [(i, 0, i + 1) for i in range(count - 1)]), equal_gpus(2))


def policy_of(of, groupings, encoder="gnn", devices="observed", **knobs):
    config = HierarchicalConfig(**(SMALL | ENCODERS[encoder] | {"devices": devices} | knobs))
    return registry.build(config, config.shape([of]), groupings, 0)


def taught(of, config, algorithm, evaluate=simulate, **knobs):
    return learner([of], config, algorithm=algorithm, evaluate=evaluate, policy=policy_of(of, config.groupings, **knobs))


def gathered(policy, of, config):
    """An update's samples, with exploration noise."""
    noisy = dataclasses.replace(config, exploration=ExplorationConfig(noise=0.2, noise_updates=9, entropy_start=0.0))
    average = learner([of], config).moving_average
    return experience.gather(policy, Lesson(of, 10**9), 0, simulate, noisy, 0, torch.Generator().manual_seed(1), average)


@pytest.mark.parametrize(("encoder", "devices"), KINDS)
def test_the_first_ratio_is_one_and_its_gradient_that_of_grouping_and_placing_together(encoder, devices):
    """Mirhoseini et al. (2018), equations 4 and 6: at ratio 1 PPO's gradient is REINFORCE's, and it reaches every parameter."""
    of, config = specialists(), settings(samples=3, groupings=4)
    policy = policy_of(of, 4, encoder, devices)
    made = gathered(policy, of, config)
    gradients = {}
    for name in ("reinforce", "decision", "sample"):
        scored = replay(policy, of, made.tape, made.episode)
        ratio = (scored.tape.by_decision(Decisions.log_probability) - made.before).detach()
        assert ratio.shape[1] == 8 + 4 and ratio.abs().max() < 1e-5
        policy.zero_grad()
        loss = reinforce(scored, made.credit) if name == "reinforce" else ppo(scored, made.before, made.credit, PpoConfig(ratio=name))
        loss.backward()
        gradients[name] = {key: value.grad.clone() for key, value in policy.named_parameters()}
    for key, expected in gradients["reinforce"].items():
        assert expected.abs().sum() > 0, key
        for name in ("decision", "sample"):
            torch.testing.assert_close(gradients[name][key], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("algorithm", [PpoConfig(epochs=3), PpoConfig(epochs=2, minibatches=4, ratio="sample")])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_an_update_makes_samples_more_probable_by_how_much_faster_they_are(algorithm, encoder):
    of = specialists()
    after = taught(of, settings(updates=1, samples=4, groupings=4, lr=1e-4), algorithm, encoder=encoder)
    fit(after)
    made = after._reinforcement.experience[0]
    with torch.no_grad():
        gain = replay(after.policy, of, made.tape, made.episode).tape.log_probability() - made.before.sum(1)
    assert made.reward.max() > made.reward.min() and float((made.credit.advantage[0] * gain).mean()) > 0.01
    assert float(np.corrcoef(gain, made.reward[0])[0, 1]) > 0.2


def test_equal_rewards_change_nothing():
    def all_the_same(problem, placements, *, timeline=False):
        return tuple(dataclasses.replace(result, step_time_ns=123_456_789) for result in simulate(problem, placements))

    of = specialists()
    after = taught(of, settings(updates=3, samples=4, groupings=2), PpoConfig(epochs=3, ratio="sample"), all_the_same)
    before = {name: value.clone() for name, value in after.policy.named_parameters()}
    fit(after)
    assert after.updates_done == 3 and all(torch.equal(value, before[name]) for name, value in after.policy.named_parameters())


@pytest.mark.parametrize(
    ("encoder", "devices", "ratio"),
    [
        slow("paper", "names", "sample"),
        ("gnn", "observed", "decision"),
        slow("gnn", "observed", "sample"),
        slow("paper", "names", "decision"),
    ],
)
def test_it_finds_the_optimum(encoder, devices, ratio):
    of = specialists()
    config = settings(updates=10, samples=2, groupings=8, lr=0.02)
    after = taught(of, config, PpoConfig(epochs=3, decisions="sum", ratio=ratio), encoder=encoder, devices=devices, sharpness=1.0)
    fit(after)
    assert after.decode(0).step_time_ns == after.best.by_problem[0].step_time_ns == 8 * 10**8 + 7 * 10


class StopAfter(Callback):
    """Ends a run after so many updates."""

    def __init__(self, updates):
        self.updates = updates

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        trainer.should_stop = batch.last and batch.update == self.updates - 1


@pytest.mark.parametrize("stop", [slow(1), 4])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, stop):
    """The Grouper imitates a clustering first; then epochs in minibatches of whole groupings."""
    grouping = GroupingConfig(updates=2, lr=0.01, lr_after=0.1)
    config = settings(updates=4, samples=2, groupings=4, lr=0.01, grouping=grouping)
    algorithm = PpoConfig(epochs=2, minibatches=2, self_imitation=0.5)

    def run(folder, *callbacks, resume=False):
        of_run = taught(specialists(), config, algorithm)
        fit(of_run, folder=folder, checkpoint=folder / FILE if resume else None, callbacks=callbacks)
        return of_run

    whole = run(tmp_path / "whole")
    run(tmp_path / "parts", StopAfter(stop))
    resumed = run(tmp_path / "parts", resume=True)
    assert resumed.updates_done == whole.updates_done == 6
    expected, found = (load_file(tmp_path / name / FILE) for name in ("whole", "parts"))
    assert expected.keys() == found.keys() and all(torch.equal(value, found[name]) for name, value in expected.items())


@pytest.mark.parametrize("parts", [1, slow(2), 4, slow(8), 16])
def test_minibatches_score_each_sample_under_its_own_grouping(parts):
    of = specialists()
    policy = policy_of(of, 4)
    made = gathered(policy, of, settings(samples=4, groupings=4))
    for turn in range(parts):
        rows = learning.minibatch(turn, parts, 16)
        scored = replay(policy, of, made.tape, made.episode, rows)
        torch.testing.assert_close(scored.tape.by_decision(Decisions.log_probability), made.before[rows], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("parts", [3, 5, 6, 7])
def test_parts_that_would_cut_a_grouping_are_refused_before_anything_is_computed(parts):
    config, of = settings(samples=4, groupings=4), chains(2, 2, 2)
    with pytest.raises(ValueError, match=rf"algorithm\.minibatches: {parts} parts of 4 groupings with 4 placements each would cut"):
        taught(of, config, PpoConfig(minibatches=parts))
    learner([of], config, algorithm=PpoConfig(minibatches=parts), write=ignore)  # no grouping is shared here
    tape = Tape("sample", 16, torch.Generator().manual_seed(0))
    tape("group", torch.zeros(4, 3, 2))
    with pytest.raises(ValueError, match="cut a choice that others share"):
        for turn in range(parts):
            Tape.replaying(tape, learning.minibatch(turn, parts, 16))


def test_every_sample_is_in_one_part_and_no_part_is_empty():
    for samples in range(1, 20):
        for parts in range(1, samples + 1):
            made = [list(range(samples))[learning.minibatch(turn, parts, samples)] for turn in range(parts)]
            assert [each for part in made for each in part] == list(range(samples)) and max(map(len, made)) - min(map(len, made)) <= 1


def test_a_critic_is_asked_for_in_vain():
    with pytest.raises(ValueError, match=r"training\.credit\.baseline: 'critic' needs a policy with a critic"):
        taught(chains(2, 2, 2), settings(credit=CreditConfig(baseline="critic", normalise=False)), PpoConfig())


@pytest.mark.parametrize("baseline", ["leave-one-out", "moving-average"])
def test_the_baseline_is_the_one_that_is_configured(baseline):
    of = specialists()
    after = taught(of, settings(updates=2, samples=2, groupings=2, baseline=baseline), PpoConfig(epochs=2))
    fit(after)
    assert bool(after.moving_average.average) == (baseline == "moving-average")
