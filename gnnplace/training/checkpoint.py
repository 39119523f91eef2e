"""Checkpoints: Lightning's, written as safetensors with one JSON document of metadata, atomically. Nothing executable is in them.

A checkpoint holds all that the next update depends on: weights, Adam, moving averages, best placements, where the loops stand. Lightning
reads and writes it through `SafetensorsIO`; `policy_of` takes the policy alone, from the checkpoints of earlier versions, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.fabric.plugins import CheckpointIO
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from gnnplace.formats import atomic
from gnnplace.policies.protocol import Renamed

FORMAT, VERSION = "gnnplace.checkpoint", 3  # 2: by hand, the policy's weights under "learner.policy."; 3: Lightning's own tree
NAME, SUFFIX = "checkpoint", ".safetensors"
FILE = NAME + SUFFIX
OWN = "gnnplace"  # what the learner adds to Lightning's tree: description, updates_done, best
POLICY = {2: "learner.policy.", 3: "state_dict/policy."}
TENSOR, ITEMS = "$tensor", "$items"


class SafetensorsIO(CheckpointIO):
    """Writes and reads Lightning's checkpoints as safetensors."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None) -> None:
        """Writes the tree of a checkpoint. Raises TypeError for a value that is neither plain data nor a tensor, OSError."""
        tensors: dict[str, Tensor] = {}
        document = {"format": FORMAT, "version": VERSION, "tree": _split(checkpoint, "", tensors)}
        contiguous = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        atomic.write_bytes(path, save(contiguous, {"gnnplace": json.dumps(document)}))

    def load_checkpoint(self, path: str | os.PathLike[str], map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """The tree of a checkpoint. Raises ValueError (one line) where it is damaged or of a version that can't go on, OSError."""
        version, document, tensors = _read(Path(path))
        if version != VERSION:
            raise ValueError(f"{path}: a run of version {version} can't go on; its policy can be used (init, --checkpoint)")
        tree = _join(document["tree"], tensors)
        assert isinstance(tree, dict)
        return tree

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        Path(path).unlink(missing_ok=True)


@dataclass(frozen=True, eq=False)
class PolicyWeights:
    """A policy in a checkpoint: its weights by name, what describes the run that trained it (plain data), and how far it had come."""

    path: Path
    description: Mapping[str, Any]
    updates_done: int
    weights: Mapping[str, Tensor]


def policy_of(path: str | os.PathLike[str]) -> PolicyWeights:
    """The policy of a checkpoint. Raises ValueError (one line) where it is damaged or of another version, OSError where unreadable."""
    path = Path(path)
    version, document, tensors = _read(path)
    prefix = POLICY[version]
    weights = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    own = document if version == 2 else document["tree"][OWN]
    return PolicyWeights(path, own["description"], own["updates_done"], weights)


def write_policy(trained: PolicyWeights, path: str | os.PathLike[str]) -> None:
    """Writes the policy alone, as a checkpoint from which it can be used and trained on: without Adam, averages and best placements."""
    own = {"description": trained.description, "updates_done": trained.updates_done, "best": None}
    document = {"format": FORMAT, "version": VERSION, "tree": {OWN: own}}
    weights = {POLICY[VERSION] + name: value.contiguous() for name, value in trained.weights.items()}
    atomic.write_bytes(path, save(weights, {"gnnplace": json.dumps(document)}))


def restore_policy(trained: PolicyWeights, policy: nn.Module) -> None:
    """Loads the policy's weights. Raises ValueError where they have other names or shapes than the policy."""
    expected, known = policy.state_dict(), todays(trained.weights, policy)
    for name in sorted(known.keys() | expected.keys()):
        there, here = (tuple(weights[name].shape) if name in weights else None for weights in (known, expected))
        if there != here:
            raise ValueError(f"{trained.path}: weights {name!r} have shape {there}, the policy's have {here}; it is of another policy")
    policy.load_state_dict(known)


def todays(weights: Mapping[str, Tensor], policy: nn.Module, prefix: str = "") -> dict[str, Tensor]:
    """Weights of a policy, named `prefix` and theirs, under the names of this version."""
    older = {prefix + then: prefix + now for then, now in policy.older_names.items()} if isinstance(policy, Renamed) else {}

    def renamed(name: str) -> str:
        return next((now + name.removeprefix(then) for then, now in older.items() if name.startswith(then)), name)

    return {renamed(name): value for name, value in weights.items()}


def _read(path: Path) -> tuple[int, dict[str, Any], dict[str, Tensor]]:
    """Version, metadata and tensors of a file."""
    if not path.is_file():
        raise ValueError(f"{path}: there is no checkpoint")
    try:
        with safe_open(str(path), framework="pt") as file:
            document = json.loads((file.metadata() or {}).get("gnnplace", "{}"))
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: not a checkpoint: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f"{path}: format {document.get('format') if isinstance(document, dict) else document!r} is not {FORMAT!r}")
    if document.get("version") not in POLICY:
        raise ValueError(f"{path}: version {document.get('version')!r} of {FORMAT} is not known; this is version {VERSION}")
    for key in ("description",) if document["version"] == 2 else ("tree",):
        if key not in document:
            raise ValueError(f"{path}: {key} is missing")
    return document["version"], document, tensors


def _split(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Plain data for JSON; tensors are named by where they stand, and go to `tensors`. Keys that are no strings keep their type."""
    if isinstance(value, Tensor):
        tensors[name] = value
        return {TENSOR: name}
    if isinstance(value, Mapping):
        parts = {key: _split(part, f"{name}/{key}".lstrip("/"), tensors) for key, part in value.items()}
        return parts if all(isinstance(key, str) for key in parts) else {ITEMS: [[key, part] for key, part in parts.items()]}
    if isinstance(value, list | tuple):
        return [_split(part, f"{name}/{index}", tensors) for index, part in enumerate(value)]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"checkpoint: {name}: a {type(value).__name__} is neither plain data nor a tensor")


def _join(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_join(part, tensors) for part in value]
    if not isinstance(value, dict):
        return value
    if TENSOR in value:
        return tensors[value[TENSOR]]
    if ITEMS in value:
        return {key: _join(part, tensors) for key, part in value[ITEMS]}
    return {key: _join(part, tensors) for key, part in value.items()}
