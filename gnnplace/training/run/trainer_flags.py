"""The flags of Lightning's Trainer that a configuration may give, checked before anything is made.

Types are read from Lightning. Its other checks are run by making a Trainer of the flags, which runs nothing.
"""

from __future__ import annotations

import inspect
import logging
import math
import warnings
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import lightning
import torch
from lightning import Trainer
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.strategies import DDPStrategy
from pydantic import ConfigDict, TypeAdapter, ValidationError

from gnnplace.formats import strict_json
from gnnplace.knobs import MOST
from gnnplace.simulator.simulator import usable_cores

DEFAULTS: Mapping[str, Any] = {"accelerator": "cpu", "devices": 1}
OURS = {  # flags that have another place here, or would break a promise of a run
    "accumulate_grad_batches": "training.problems_per_update says how many problems an update learns from",
    "barebones": "a run keeps checkpoints and metrics",
    "callbacks": "they are objects: give them to gnnplace.train",
    "check_val_every_n_epoch": "training.validation_every says when",
    "default_root_dir": "runs is the folder of all runs",
    "enable_checkpointing": "training.checkpoint_every says when",
    "enable_progress_bar": "--quiet says so",
    "fast_dev_run": "training.updates says how long a run is",
    "limit_train_batches": "training.updates says how long a run is",
    "logger": "tracking says so",
    "max_epochs": "training.updates says how long a run is",
    "model_registry": "register names a model of MLflow's registry",
    "overfit_batches": "problems says what a run learns from",
    "plugins": "checkpoints are safetensors",
    "profiler": "what it reports is not shown; profile a program that calls gnnplace.train",
    "use_distributed_sampler": "the processes of a run share its samples",
    "val_check_interval": "training.validation_every says when",
}
# where Lightning has more: strategies of processes that are commands of their own, and weights that checkpoints hold
CHOICES = {
    "strategy": ("auto", "single_device", "ddp", "ddp_find_unused_parameters_true"),
    "precision": (32, "32", "32-true", 16, "16", "16-mixed", "bf16", "bf16-mixed"),
}
BELOW_ZERO = {"devices": -1, "max_steps": -1, "num_sanity_val_steps": -1}  # which stands for all of them
WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a map",
    type(None): "null",
}


def flags(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The flags of a configuration over the defaults.

    Raises ValueError (one line) for one that is none, that has another place, or that is of another type or size than
    it may be.
    """
    for name, value in chosen.items():
        _check(name, value)
    merged = {**DEFAULTS, **chosen}
    if merged["accelerator"] in ("gpu", "cuda") and not torch.cuda.is_available():
        raise ValueError(f"trainer.accelerator: {merged['accelerator']!r}, and PyTorch finds no CUDA device here")
    if merged.get("strategy") == "ddp":  # pre-training leaves some weights without a gradient
        merged["strategy"] = DDPStrategy(
            find_unused_parameters=True, process_group_backend=None if merged["accelerator"] != "cpu" else "gloo"
        )
    return merged


def tried(chosen: Mapping[str, Any]) -> int:
    """The number of processes that train with these flags, which are checked by `flags` and by Lightning.

    Raises ValueError (one line) for what Lightning refuses, and for more processes than this one has cores.
    """
    merged = flags(chosen)
    try:
        trial = trainer(merged)
    except ValueError as error:
        for name, value in chosen.items():  # the first that is refused by itself
            try:
                trainer({**DEFAULTS, name: value})
            except ValueError as alone:
                raise ValueError(f"trainer.{name}: {strict_json.shown(value)}: {alone}") from alone
        raise ValueError(f"trainer: {error}") from error
    if isinstance(trial.accelerator, CPUAccelerator) and trial.num_devices > usable_cores():
        raise ValueError(
            f"trainer.devices: {trial.num_devices} processes take a core each, and this one may use {usable_cores()}"
        )
    return trial.num_devices * trial.num_nodes


def trainer(arguments: Mapping[str, Any]) -> Trainer:
    """A Trainer. Raises ValueError (one line) if Lightning refuses."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return lightning.Trainer(**arguments)
    except Exception as error:  # it raises whatever its parts do
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


def _check(name: str, value: Any) -> None:
    if name in OURS:
        raise ValueError(f"trainer.{name}: {OURS[name]}")
    parameters = inspect.signature(Trainer.__init__).parameters.keys() - {"self"}
    if name not in parameters:
        raise ValueError(
            f"trainer: {strict_json.unknown('flag of the Trainer', name, sorted(parameters - OURS.keys()))}"
        )
    try:
        _type(name).validate_python(value)
    except (ValidationError, ValueError) as error:  # ValueError: a whole number of thousands of digits
        raise ValueError(
            f"trainer.{name}: {strict_json.shown(value)} is none of what it may be: {_words(name)}"
        ) from error
    if isinstance(value, int | str) and value not in CHOICES.get(name, (value,)):
        raise ValueError(f"trainer.{name}: {strict_json.shown(value)} is none of {', '.join(map(str, CHOICES[name]))}")
    if isinstance(value, int | float) and not BELOW_ZERO.get(name, 0) <= value <= MOST:
        least = f" (or {BELOW_ZERO[name]}, for all)" if name in BELOW_ZERO else ""
        rule = "is not finite" if not math.isfinite(value) else f"is not between 0{least} and {MOST}"
        raise ValueError(f"trainer.{name}: {strict_json.shown(value)} {rule}")


@cache
def _type(name: str) -> TypeAdapter:
    return TypeAdapter(
        get_type_hints(Trainer.__init__)[name], config=ConfigDict(strict=True, arbitrary_types_allowed=True)
    )


def _words(name: str) -> str:
    """The values of a flag that a configuration can state."""
    hint = get_type_hints(Trainer.__init__)[name]
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    choices = [strict_json.shown(choice) for part in parts if get_origin(part) is Literal for choice in get_args(part)]
    kinds = [get_origin(part) or part for part in parts]
    return ", ".join([*(words for kind, words in WORDS.items() if kind in kinds), *choices])
