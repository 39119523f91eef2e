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
from support.learners import ignore, settings, unit_learner
from support.pretended_gpu import GPU, REAL_GPU, using

from gnnplace.config.training import TrainingConfig
from gnnplace.policies.encoders.paper import PaperGroups, PaperOps, vocabulary
from gnnplace.policies.hierarchical import Hierarchical
from gnnplace.policies.networks.grouper import Grouper
from gnnplace.policies.networks.seq2seq import Seq2Seq
from gnnplace.simulator.simulator import simulate
from gnnplace.training import checkpoint as checkpoints
from gnnplace.training.best import BestPlacements
from gnnplace.training.checkpoint import Checkpoint, load_checkpoint, restore_policy, save_checkpoint
from gnnplace.training.data import Lesson
from gnnplace.training.fit import fit
from gnnplace.training.learner import Learner
from gnnplace.training.rollout import greedy


class PretendedAccelerator(CPUAccelerator):
    def setup_device(self, device):
        assert device == GPU


def pretended_trainer(**arguments):
    """A trainer on the pretended GPU, for what asks for one on CUDA."""
    assert (arguments.pop("accelerator"), arguments.pop("devices")) == ("cuda", 1)
    return lightning.pytorch.Trainer(strategy=SingleDeviceStrategy(GPU, PretendedAccelerator()), **arguments)


@pytest.fixture(params=[GPU, REAL_GPU])
def gpu(request, monkeypatch):
    """A context in which training.device "gpu" is the pretended one, or the one that is there."""
    if request.param == GPU:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        real = lightning.Trainer
        monkeypatch.setattr(lightning, "Trainer", lambda **asked: (real if asked["accelerator"] == "cpu" else pretended_trainer)(**asked))
    return partial(using, request.param)


def paper_learner(config: TrainingConfig) -> Learner:
    """The paper's planner on two problems."""
    torch.manual_seed(1)
    problems = [chains(2, 3, 2), chains(2, 2, 2, time_ns=500)]
    kinds = vocabulary([problem.graph for problem in problems])
    ops, groups = PaperOps(kinds), PaperGroups(kinds, 3)
    placer = Seq2Seq(groups.width, 2, width=16)
    policy = Hierarchical(op_encoder=ops, grouper=Grouper(ops.width, 3), group_encoder=groups, placer=placer, groupings=2)
    lessons = [Lesson(problem, 3000) for problem in problems]
    return Learner(policy, lessons, config, 3, simulate, BestPlacements(len(lessons), ignore))


def trained(make, config, path, checkpoint: Checkpoint | None = None) -> Learner:
    learner = make(config)
    fit(learner, lambda present: save_checkpoint(path, present, {}), checkpoint=checkpoint)
    return learner


def configured(**knobs) -> TrainingConfig:
    """Four updates, some with noise; the size of a step is not left to gradients that are nothing but rounding."""
    config = settings(updates=4, lr=0.01, problems_per_update=2, **knobs)
    noisy = dataclasses.replace(config.exploration, noise=0.1, noise_updates=2, entropy_start=0.1, entropy_end=0.1)
    return dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, eps=1e-3), exploration=noisy)


LEARNERS = {
    "unit-placer": (unit_learner, configured(warm_start=2, self_imitation=0.5)),
    "unit-placer, moving average": (unit_learner, configured(warm_start=2, advantage="moving-average", mask_infeasible_after=1)),
    "paper": (paper_learner, configured(advantage="moving-average", mask_infeasible_after=2, groupings=2)),
}


def assert_alike(ours: Learner, theirs: Learner):
    """Weights and averages up to rounding, and the same placements."""
    expected, found = theirs.state_dict(), ours.state_dict()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-4, msg=lambda why, name=name: f"{name}: {why}")
    assert [best.placement.device.tolist() for best in ours.best.found] == [best.placement.device.tolist() for best in theirs.best.found]


def on_gpu(config: TrainingConfig) -> TrainingConfig:
    return dataclasses.replace(config, device="gpu")


@pytest.mark.parametrize(("make", "config"), LEARNERS.values(), ids=LEARNERS)
def test_a_gpu_learns_what_a_cpu_learns(make, config, gpu, tmp_path):
    expected = trained(make, config, tmp_path / "cpu")
    with gpu():
        found = trained(make, on_gpu(config), tmp_path / "gpu")
    assert {value.device.type for value in found.state_dict().values()} == {"cpu"}  # as Lightning leaves it
    assert_alike(found, expected)
    for problem in range(len(found.lessons)):
        assert found.decode(problem).step_time_ns == expected.decode(problem).step_time_ns


@pytest.mark.parametrize("first", ["cpu", "gpu"])
@pytest.mark.parametrize(("make", "config"), LEARNERS.values(), ids=LEARNERS)
def test_a_run_of_one_device_goes_on_on_the_other(make, config, first, gpu, tmp_path):
    whole = trained(make, config, tmp_path / "whole")
    path, half = tmp_path / "parts", dataclasses.replace(config, updates=2)  # no rate depends on the number of updates
    parts = [half, on_gpu(config)] if first == "cpu" else [on_gpu(half), config]
    found, checkpoint = None, None
    for part in parts:
        with gpu() if part.device == "gpu" else nullcontext():
            found = trained(make, part, path, checkpoint)
        checkpoint = load_checkpoint(path)
    assert checkpoint.updates_done == whole.updates_done == config.all_updates
    steps = [state["step"] for adam in found.optimizers(use_pl_optimizer=False) for state in adam.state.values()]
    assert {step.device.type for step in steps} == {"cpu"}  # where Adam keeps them, whatever it updates
    assert_alike(found, whole)


def test_a_checkpoint_of_a_gpu_places_on_the_cpu(gpu, tmp_path, monkeypatch):
    config, saved, written = on_gpu(configured()), [], []
    monkeypatch.setattr(checkpoints, "save", lambda tensors, metadata: written.extend(tensors.values()) or serialised(tensors, metadata))

    def save(learner):
        assert next(learner.policy.parameters()).device.type != "cpu"
        save_checkpoint(tmp_path / "c", learner, {})
        saved.append({name: value.cpu().clone() for name, value in learner.policy.state_dict().items()})

    with gpu():
        fit(unit_learner(config), save)
    fresh, checkpoint = unit_learner(config).policy, load_checkpoint(tmp_path / "c")
    assert {value.device.type for value in written} == {"cpu"}
    restore_policy(checkpoint, fresh)
    for name, value in fresh.state_dict().items():
        assert torch.equal(value, saved[-1][name]), name
    greedy(fresh)(chains(3, 3, 2))


def test_without_a_gpu_training_on_one_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"training\.device: 'gpu', and PyTorch finds no CUDA device here"):
        fit(unit_learner(on_gpu(configured())), ignore)
