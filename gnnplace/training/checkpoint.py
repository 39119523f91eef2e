"""Checkpoints: safetensors with one JSON document of metadata, written atomically, refused when of another shape or version.

A checkpoint holds all that the next update depends on: weights, both Adams, moving averages, best placements. Nothing is unpickled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from gnnplace.formats import atomic
from gnnplace.placement import Placement
from gnnplace.training.best import Best
from gnnplace.training.learner import Learner

FORMAT, VERSION = "gnnplace.checkpoint", 2  # 2: ranges of features; observations count a tensor once for each device
FILE = "checkpoint.safetensors"
KEYS = ("description", "updates_done", "best")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The tensors of a checkpoint, what describes its run (plain data) and where the run stood."""

    path: Path
    description: Mapping[str, Any]
    updates_done: int
    best: tuple[Mapping[str, Any] | None, ...]
    tensors: Mapping[str, Tensor]


def save_checkpoint(path: str | os.PathLike[str], learner: Learner, description: Mapping[str, Any]) -> None:
    """Writes the learner's state and what is needed to build the learner again (plain data), atomically. Raises OSError."""
    tensors = {f"learner.{name}": value for name, value in learner.state_dict().items()}
    for phase, optimizer in enumerate(_optimizers(learner)):
        tensors |= _adam(optimizer, learner.policy, f"adam.{phase}")
    for problem, best in enumerate(learner.best.found):
        if best is not None:
            tensors[f"best.{problem}.device"] = torch.from_numpy(best.placement.device.copy())
            if best.placement.priority is not None:
                tensors[f"best.{problem}.priority"] = torch.from_numpy(best.placement.priority.copy())
    metadata = {
        "format": FORMAT, "version": VERSION, "description": description, "updates_done": learner.updates_done,
        "best": [_described(best) for best in learner.best.found],
    }  # fmt: skip
    atomic.write_bytes(path, save({name: value.cpu().contiguous() for name, value in tensors.items()}, {"gnnplace": json.dumps(metadata)}))


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Reads a checkpoint. Raises ValueError (one line) where it is damaged or of another version, OSError where unreadable."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: there is no checkpoint")
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = json.loads((file.metadata() or {}).get("gnnplace", "{}"))
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: not a checkpoint: {error}") from error
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise ValueError(f"{path}: format {metadata.get('format') if isinstance(metadata, dict) else metadata!r} is not {FORMAT!r}")
    if metadata.get("version") != VERSION:
        raise ValueError(f"{path}: version {metadata.get('version')!r} of {FORMAT} is not known; this is version {VERSION}")
    missing = [key for key in KEYS if key not in metadata]
    if missing:
        raise ValueError(f"{path}: {missing[0]} is missing")
    return Checkpoint(path, metadata["description"], metadata["updates_done"], tuple(metadata["best"]), tensors)


def restore_policy(checkpoint: Checkpoint, policy: nn.Module) -> None:
    """Loads the policy's weights. Raises ValueError where they have other names or shapes than the policy."""
    _load(checkpoint, policy, "learner.policy.")


def restore(checkpoint: Checkpoint, learner: Learner) -> None:
    """Puts a learner where the checkpoint's stood. Call it once the learner's trainer has made its optimisers.

    Raises ValueError where the checkpoint is of another policy or other problems.
    """
    if len(checkpoint.best) != len(learner.lessons):
        raise ValueError(f"{checkpoint.path}: is of {len(checkpoint.best)} problems, not of {len(learner.lessons)}")
    _load(checkpoint, learner, "learner.")
    for phase, optimizer in enumerate(_optimizers(learner)):
        _restore_adam(optimizer, learner.policy, checkpoint, f"adam.{phase}")
    learner.updates_done = checkpoint.updates_done
    for problem, described in enumerate(checkpoint.best):
        learner.best.found[problem] = None if described is None else _best(checkpoint, problem, described)


def _load(checkpoint: Checkpoint, module: nn.Module, prefix: str) -> None:
    saved = {name.removeprefix(prefix): value for name, value in checkpoint.tensors.items() if name.startswith(prefix)}
    expected = module.state_dict()
    for name in sorted(saved.keys() | expected.keys()):
        there, here = (tuple(weights[name].shape) if name in weights else None for weights in (saved, expected))
        if there != here:
            raise ValueError(f"{checkpoint.path}: weights {name!r} have shape {there}, the policy's have {here}; it is of another policy")
    module.load_state_dict(saved)


def _optimizers(learner: Learner) -> list[torch.optim.Optimizer]:
    optimizers = learner.optimizers(use_pl_optimizer=False)
    assert isinstance(optimizers, list)
    return optimizers


def _adam(optimizer: torch.optim.Optimizer, policy: nn.Module, prefix: str) -> dict[str, Tensor]:
    state = optimizer.state
    return {
        f"{prefix}.{key}.{name}": value.detach().clone()
        for name, parameter in policy.named_parameters()
        if parameter in state
        for key, value in state[parameter].items()
    }


def _restore_adam(optimizer: torch.optim.Optimizer, policy: nn.Module, checkpoint: Checkpoint, prefix: str) -> None:
    for name, parameter in policy.named_parameters():
        names = {key: f"{prefix}.{key}.{name}" for key in ("step", "exp_avg", "exp_avg_sq")}
        if names["step"] in checkpoint.tensors:
            state = {key: checkpoint.tensors[full].to(parameter.device, copy=True) for key, full in names.items()}
            optimizer.state[parameter] = state | {"step": state["step"].cpu()}  # where Adam keeps it


def _described(best: Best | None) -> dict[str, Any] | None:
    if best is None:
        return None
    return {"schedule": best.placement.schedule, "step_time_ns": best.step_time_ns, "origin": best.origin}


def _best(checkpoint: Checkpoint, problem: int, described: Mapping[str, Any]) -> Best:
    priority = checkpoint.tensors.get(f"best.{problem}.priority")
    placement = Placement(
        checkpoint.tensors[f"best.{problem}.device"].numpy(), described["schedule"], None if priority is None else priority.numpy()
    )
    return Best(placement, described["step_time_ns"], described["origin"])
