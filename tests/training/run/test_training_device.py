"""Training on a GPU, a real or a pretended one: the same updates as on the CPU, and checkpoints that either goes on from."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from functools import partial

import lightning
import pytest
import torch
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.strategies import SingleDeviceStrategy
from safetensors.torch import save as serialised
from support.graphs import chains
from support.learners import REINFORCE, ignore, settings, unit_learner
from support.pretended_gpu import GPU, REAL_GPU, using

from gnnplace.config.algorithms import AlgorithmConfig, PpoConfig, ReinforceConfig
from gnnplace.config.training import TrainingConfig
from gnnplace.policies.encoders.kinds import vocabulary
from gnnplace.policies.encoders.paper import PaperGroups, PaperOps
from gnnplace.policies.hierarchical.config import Hierarchical
from gnnplace.policies.hierarchical.grouper import Grouper
from gnnplace.policies.placing.placer import Seq2Seq
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run import checkpoint as checkpoints
from gnnplace.training.run.assemble import fit
from gnnplace.training.run.checkpoint import FILE, policy_of, restore_policy
from gnnplace.training.run.learner import Learner
from gnnplace.training.update.best import BestPlacements
from gnnplace.training.update.learning import Learning
from gnnplace.training.update.lesson import Lesson
from gnnplace.training.update.rollout import greedy


class PretendedAccelerator(CPUAccelerator):
    def setup_device(self, device):
        assert device == GPU


def pretended_trainer(**arguments):
    """A trainer on the pretended GPU, for what asks for one on CUDA."""
    assert (arguments.pop("accelerator"), arguments.pop("devices")) == ("gpu", 1)
    return lightning.pytorch.Trainer(strategy=SingleDeviceStrategy(GPU, PretendedAccelerator()), **arguments)


@pytest.fixture(params=[GPU, REAL_GPU])
def gpu(request, monkeypatch):
    """A context in which trainer.accelerator "gpu" is the pretended one, or the one that is there."""
    if request.param == GPU:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        real = lightning.Trainer
        monkeypatch.setattr(lightning, "Trainer", lambda **asked: (real if asked["accelerator"] == "cpu" else pretended_trainer)(**asked))
    return partial(using, request.param)


def paper_learner(config: TrainingConfig, algorithm: AlgorithmConfig) -> Learner:
    """The paper's planner on two problems."""
    torch.manual_seed(1)
    problems = [chains(2, 3, 2), chains(2, 2, 2, time_ns=500)]
    kinds = vocabulary([problem.graph for problem in problems])
    ops, groups = PaperOps(kinds), PaperGroups(kinds, 3)
    placer = Seq2Seq(groups.width, 2, width=16)
    policy = Hierarchical(op_encoder=ops, grouper=Grouper(ops.width, 3), group_encoder=groups, placer=placer, groupings=2)
    lessons = [Lesson(problem, 3000) for problem in problems]
    return Learner(policy, lessons, Learning(config, algorithm, 3), simulate, BestPlacements(len(lessons), ignore))


def trained(make, config, folder, algorithm=REINFORCE, accelerator="cpu", resume=False, **flags) -> Learner:
    learner = make(config, algorithm)
    fit(learner, trainer={"accelerator": accelerator, **flags}, folder=folder, checkpoint=folder / FILE if resume else None)
    return learner


def configured(**knobs) -> TrainingConfig:
    """Four updates, some with noise; the size of a step is not left to gradients that are nothing but rounding."""
    config = settings(updates=4, lr=0.01, problems_per_update=2, **knobs)
    noisy = dataclasses.replace(config.exploration, noise=0.1, noise_updates=2, entropy_start=0.1, entropy_end=0.1)
    return dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, eps=1e-3), exploration=noisy)


LEARNERS = {
    "unit-placer": (unit_learner, configured(warm_start=2), ReinforceConfig(decisions="sum", self_imitation=0.5)),
    "unit-placer, ppo": (unit_learner, configured(warm_start=2), PpoConfig(epochs=2)),
    "unit-placer, moving average": (unit_learner, configured(warm_start=2, baseline="moving-average", mask_infeasible_after=1), REINFORCE),
    "paper": (paper_learner, configured(baseline="moving-average", mask_infeasible_after=2, groupings=2), REINFORCE),
}


def assert_alike(ours: Learner, theirs: Learner):
    """Weights and averages up to rounding, and the same placements."""
    expected, found = theirs.policy.state_dict(), ours.policy.state_dict()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-4, msg=lambda why, name=name: f"{name}: {why}")
    for problem, average in theirs.moving_average.average.items():
        torch.testing.assert_close(ours.moving_average.average[problem], average)
    placements, others = ([best.placement.device.tolist() for best in each.best.by_problem] for each in (ours, theirs))
    assert placements == others


@pytest.mark.parametrize(("make", "config", "algorithm"), LEARNERS.values(), ids=LEARNERS)
def test_a_gpu_learns_what_a_cpu_learns(make, config, algorithm, gpu, tmp_path):
    expected = trained(make, config, tmp_path / "cpu", algorithm)
    with gpu():
        found = trained(make, config, tmp_path / "gpu", algorithm, "gpu")
    assert {value.device.type for value in found.policy.state_dict().values()} == {"cpu"}  # as Lightning leaves it
    assert_alike(found, expected)
    for problem in range(len(found.lessons)):
        assert found.decode(problem).step_time_ns == expected.decode(problem).step_time_ns


@pytest.mark.parametrize("first", ["cpu", "gpu"])
@pytest.mark.parametrize(("make", "config", "algorithm"), LEARNERS.values(), ids=LEARNERS)
def test_a_run_of_one_device_goes_on_on_the_other(make, config, algorithm, first, gpu, tmp_path):
    whole = trained(make, config, tmp_path / "whole", algorithm)
    path, half = tmp_path / "parts", {"max_steps": config.warm_start.updates + 2 * algorithm.steps}
    found = None
    for flags, accelerator in zip((half, {}), ("cpu", "gpu") if first == "cpu" else ("gpu", "cpu"), strict=True):
        with gpu() if accelerator == "gpu" else nullcontext():
            found = trained(make, config, path, algorithm, accelerator, resume=not flags, **flags)
    assert policy_of(path / FILE).updates_done == whole.updates_done == whole.learning.all_updates
    steps = [state["step"] for state in found.optimizers(use_pl_optimizer=False).state.values()]
    assert {step.device.type for step in steps} == {"cpu"}  # where Adam keeps them, whatever it updates
    assert_alike(found, whole)


def test_a_checkpoint_of_a_gpu_places_on_the_cpu(gpu, tmp_path, monkeypatch):
    config, written = configured(), []
    monkeypatch.setattr(checkpoints, "save", lambda tensors, metadata: written.extend(tensors.values()) or serialised(tensors, metadata))
    with gpu():
        taught = trained(unit_learner, config, tmp_path, accelerator="gpu")
    assert {value.device.type for value in written} == {"cpu"}
    fresh = unit_learner(config).policy
    restore_policy(policy_of(tmp_path / FILE), fresh)
    for name, value in fresh.state_dict().items():
        assert torch.equal(value, taught.policy.state_dict()[name]), name
    greedy(fresh)(chains(3, 3, 2))


def test_without_a_gpu_training_on_one_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"trainer\.accelerator: 'gpu', and PyTorch finds no CUDA device here"):
        fit(unit_learner(configured()), trainer={"accelerator": "gpu"})
