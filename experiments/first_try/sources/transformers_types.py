"""Every model type of transformers that has an automatic class, with a small configuration and random inputs.

A configuration is made small in steps (`LEVELS`): the first one that plain PyTorch runs is tried. Inputs are taken from the
signature of the model, the richest first.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from experiments.first_try.cases import Inputs, Kind, NotRunnableError, TorchCase, adamw, plain
from experiments.first_try.sources.calls import called
from experiments.first_try.sources.torchvision_library import torchvision_if_installed
from experiments.first_try.sources.transformers_inputs import inputs_of

torchvision_if_installed()
from transformers import CONFIG_MAPPING, PretrainedConfig  # noqa: E402  # it looks for torchvision
from transformers.models.auto import modeling_auto  # noqa: E402

from experiments.first_try.sources.transformers_sizes import LEVELS, shrunk  # noqa: E402

KINDS = ("inference", "training")
FIRST = ("MODEL_MAPPING_NAMES", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES")
MOST_PARAMETERS = 400_000_000
_works: dict[str, tuple[str, int]] = {}  # the level and the number of the inputs that run, of a type tried before


def names() -> list[str]:
    """All model types that an automatic class knows."""
    return sorted(_classes().keys() & set(CONFIG_MAPPING))


def case(name: str, kind: Kind) -> TorchCase:
    """A small model of a type. Raises NotRunnableError with what plain PyTorch says of the smallest."""
    if name in _works:
        level, number = _works[name]
        model = _model(name, level)
        return TorchCase(model, [*inputs_of(model)][number], optimizer=adamw)
    reasons: list[str] = []
    for level in LEVELS:
        try:
            model = _model(name, level)
            for number, inputs in enumerate(inputs_of(model)):
                refusal = _refusal(model, inputs, kind)
                if refusal is None:
                    _works[name] = level, number
                    return TorchCase(model, inputs, optimizer=adamw)
                reasons.append(refusal)
        except Exception as error:  # of any configuration and model
            reasons.append(f"{type(error).__name__}: {error}")
    raise NotRunnableError(reasons[0])


def _refusal(model: nn.Module, inputs: Inputs, kind: Kind) -> str | None:
    """Why plain PyTorch does not run a model; None if it does."""
    torch.manual_seed(0)
    try:
        with torch.no_grad():
            output = called(model.train(kind == "training"), inputs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    has_tensor = any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(plain(output)))
    return None if has_tensor else "returns no tensor"


def _model(name: str, level: str) -> nn.Module:
    torch.manual_seed(0)
    config = shrunk(_config(name), level)
    cls = getattr(importlib.import_module("transformers"), _classes()[name])
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in cls(config).parameters())
    if size > MOST_PARAMETERS:
        raise NotRunnableError(f"has {size:,} parameters after its configuration was made small")
    torch.manual_seed(0)
    return cls(shrunk(_config(name), level))


def _config(name: str) -> PretrainedConfig:
    return CONFIG_MAPPING[name](**(_PARTS[name]() if name in _PARTS else _NEEDED.get(name, {})))


@cache
def _classes() -> Mapping[str, str]:
    """The model's class for each type: that of its base model, else of its first task."""
    tables = [name for name in dir(modeling_auto) if name.endswith("_MAPPING_NAMES") and name.startswith("MODEL_")]
    found: dict[str, str] = {}
    for table in (*FIRST, *(name for name in tables if name not in FIRST)):
        for name, classes in getattr(modeling_auto, table).items():
            found.setdefault(name, classes if isinstance(classes, str) else classes[0])
    return found


def _pair(encoder: str, decoder: str) -> dict[str, Any]:
    text = CONFIG_MAPPING[decoder](is_decoder=True, add_cross_attention=True)
    return {"encoder": CONFIG_MAPPING[encoder]().to_dict(), "decoder": text.to_dict()}


_NEEDED: Mapping[str, Mapping[str, Any]] = {  # what a configuration has no default for, or one that does not fit the others
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "use_mamba_kernels": False},
}
_PARTS = {
    "encoder-decoder": lambda: _pair("bert", "bert"),
    "speech-encoder-decoder": lambda: _pair("wav2vec2", "bert"),
    "vision-encoder-decoder": lambda: _pair("vit", "bert"),
    "vision-text-dual-encoder": lambda: {
        "text_config": CONFIG_MAPPING["bert"]().to_dict(),
        "vision_config": CONFIG_MAPPING["vit"]().to_dict(),
    },
}
