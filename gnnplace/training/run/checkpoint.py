"""Checkpoints: Lightning's, written as safetensors with one JSON document of metadata, atomically.

Nothing executable is in them.

A checkpoint holds all that the next update depends on: weights, Adam, moving averages, best placements, where the loops
stand. Lightning reads and writes it through `SafetensorsIO`; `policy_of` takes the policy alone, from the checkpoints
of earlier versions, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lightning.fabric.plugins import CheckpointIO
from safetensors.torch import save
from torch import Tensor, nn

from gnnplace import package_data
from gnnplace.formats import atomic, strict_json, tensor_files
from gnnplace.policies.protocol import Renamed
from gnnplace.training.run import checkpoint_documents
from gnnplace.training.run.checkpoint_documents import OwnDocument

# 2: by hand, the policy's weights under "learner.policy."; 3: Lightning's own tree
FORMAT, VERSION = "gnnplace.checkpoint", 3
NAME, SUFFIX = "checkpoint", ".safetensors"
FILE = NAME + SUFFIX
OWN = "gnnplace"  # the learner's part of Lightning's tree: description, updates_done, best
POLICY = {2: "learner.policy.", 3: "state_dict/policy."}
TENSOR, ITEMS = "$tensor", "$items"

T = TypeVar("T")


class SafetensorsIO(CheckpointIO):
    """Writes and reads Lightning's checkpoints as safetensors."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Writes the tree of a checkpoint.

        Raises TypeError for a value that is neither plain data nor a tensor, OSError.
        """
        tensors: dict[str, Tensor] = {}
        document = {"format": FORMAT, "version": VERSION, "tree": _split(checkpoint, "", tensors)}
        contiguous = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        atomic.write_bytes(path, save(contiguous, {"gnnplace": json.dumps(document)}))

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """The tree of a checkpoint.

        Raises ValueError (one line) if it is damaged or of a version that can't be resumed, OSError.
        """
        document, metadata, tensors = _read(Path(path))
        if document["version"] != VERSION:
            raise ValueError(
                f"{path}: a run of version {document['version']} can't go on; its policy can be used (init, "
                "--checkpoint)"
            )
        if metadata.best is None:
            raise ValueError(
                f"{path}: holds a policy alone, and no run that can go on; it can be used (init, --checkpoint)"
            )
        try:
            return _join(document["tree"], tensors, "tree")
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        Path(path).unlink(missing_ok=True)


def save_policy(
    path: str | os.PathLike[str], policy: nn.Module, description: Mapping[str, Any], updates_done: int
) -> None:
    """Writes a policy alone, as `policy_of` reads it: no run can go on from it. Raises OSError."""
    weights = {f"policy.{name}": value for name, value in policy.state_dict().items()}
    of_learner = {"description": dict(description), "updates_done": updates_done}
    SafetensorsIO().save_checkpoint({OWN: of_learner, "state_dict": weights}, path)


@dataclass(frozen=True, eq=False)
class PolicyWeights:
    """A policy in a checkpoint: weights by name, the run's description (plain data), and the number of updates."""

    path: Path
    description: Mapping[str, Any]
    updates_done: int
    weights: Mapping[str, Tensor]


def located(checkpoint: str | os.PathLike[str]) -> Path:
    """The file of a checkpoint: a path, or the name of one that comes with the package, such as `improver`."""
    path = Path(checkpoint)
    shipped = package_data.folder("checkpoints") / f"{path}{SUFFIX}"
    return shipped if path.name == str(path) and not path.exists() and shipped.exists() else path


def policy_of(checkpoint: str | os.PathLike[str]) -> PolicyWeights:
    """The policy of a checkpoint, by its path or its name.

    Raises ValueError (one line) if it is damaged or of another version, OSError where unreadable.
    """
    path = located(checkpoint)
    document, metadata, tensors = _read(path)
    prefix = POLICY[document["version"]]
    weights = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    return PolicyWeights(path, metadata.description, metadata.updates_done, weights)


def restore_policy(trained: PolicyWeights, policy: nn.Module) -> None:
    """Loads the policy's weights.

    Raises ValueError if they have other names, shapes or types than the policy, or are not finite.
    """
    weights = check_weights(trained, policy)
    for name, before in policy.state_dict().items():
        # an empty range is infinite
        if not (weights[name].isfinite() | (weights[name] == before.cpu())).all():
            raise ValueError(
                f"{trained.path}: weights {name!r} are not finite: the file is damaged, or its training diverged"
            )
    policy.load_state_dict(weights)


def check_weights(trained: PolicyWeights, policy: nn.Module) -> dict[str, Tensor]:
    """The weights under today's names.

    Raises ValueError unless a policy, which may be on the meta device, has the same, of all sizes.
    """
    expected, renamed = policy.state_dict(), todays(trained.weights, policy)
    for name in sorted(renamed.keys() | expected.keys()):
        shape, due = (tuple(weights[name].shape) if name in weights else None for weights in (renamed, expected))
        place = f"{trained.path}: weights {strict_json.shown(name)}"
        if shape != due:
            raise ValueError(f"{place} have shape {shape}, the policy's have {due}; it is of another policy")
        if renamed[name].dtype != expected[name].dtype:
            raise ValueError(
                f"{place} are {renamed[name].dtype}, the policy's are {expected[name].dtype}; it is of another policy"
            )
    return renamed


def todays(weights: Mapping[str, T], policy: object, prefix: str = "") -> dict[str, T]:
    """The weights of a policy, named with `prefix`, under today's names."""
    older = (
        {prefix + then: prefix + now for then, now in policy.older_names.items()} if isinstance(policy, Renamed) else {}
    )

    def renamed(name: str) -> str:
        return next((now + name.removeprefix(then) for then, now in older.items() if name.startswith(then)), name)

    return {renamed(name): value for name, value in weights.items()}


def _read(path: Path) -> tuple[dict[str, Any], OwnDocument, dict[str, Tensor]]:
    """The metadata of a file, the learner's part of it, and the tensors."""
    if not path.exists():
        names = ", ".join(sorted(each.stem for each in package_data.folder("checkpoints").glob(f"*{SUFFIX}")))
        raise ValueError(f"{path}: there is no checkpoint; those that come with gnnplace are {names}")
    document, tensors = tensor_files.read(path, "pt")
    try:
        return document, checkpoint_documents.own(document), tensors
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _split(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Plain data for JSON; tensors are named by their place in the tree, and go to `tensors`.

    Keys that are no strings keep their type.
    """
    if isinstance(value, Tensor):
        tensors[name] = value
        return {TENSOR: name}
    if isinstance(value, Mapping):
        parts = {key: _split(part, f"{name}/{key}".lstrip("/"), tensors) for key, part in value.items()}
        return (
            parts
            if all(isinstance(key, str) for key in parts)
            else {ITEMS: [[key, part] for key, part in parts.items()]}
        )
    if isinstance(value, list | tuple):
        return [_split(part, f"{name}/{index}", tensors) for index, part in enumerate(value)]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"checkpoint: {name}: a {type(value).__name__} is neither plain data nor a tensor")


def _join(value: Any, tensors: Mapping[str, Tensor], place: str) -> Any:
    """The tree that `_split` got. Raises ValueError, with the place, for what `_split` does not make."""
    if isinstance(value, list):
        return [_join(part, tensors, f"{place}[{index}]") for index, part in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if TENSOR in value:
        if not isinstance(value[TENSOR], str) or value[TENSOR] not in tensors:
            raise ValueError(f"{place}: {strict_json.shown(value[TENSOR])} is no tensor of the file")
        return tensors[value[TENSOR]]
    if ITEMS in value:
        return {key: _join(part, tensors, f"{place}[{key!r}]") for key, part in _items(value[ITEMS], place)}
    return {key: _join(part, tensors, f"{place}.{key}") for key, part in value.items()}


def _items(items: Any, place: str) -> list[tuple[Any, Any]]:
    """The entries of a map whose keys are numbers or text."""
    if isinstance(items, list) and all(
        isinstance(item, list) and len(item) == 2 and isinstance(item[0], int | str) for item in items
    ):
        return [(key, part) for key, part in items]
    raise ValueError(f"{place}.{ITEMS}: is no list of pairs of a key and a value")
