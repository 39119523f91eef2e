"""The networks of HSDAG (Duan et al. 2024, section 3) as OpenVINO models: PyTorch modules, converted and read back.

OpenVINO folds what is 0 or 1 away, so that all parameters and statistics are drawn: a trained network has none that are. Names that it
makes up from a counter of its own are made up anew, so that the same module always gives the same file.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from datasets.build.inception_v3 import SIZE, InceptionV3
from datasets.build.resnet import RESNET_50, ResNet
from gnnplace.frontends.openvino.read import read_openvino
from gnnplace.graph import ComputationGraph

MADE_UP = re.compile(r"[A-Za-z]+_\d+")
TOKENS = 8  # a sentence of six words between its two marks


@dataclass(frozen=True)
class Workload:
    """What builds the module, example inputs by name, and what the manifest says of it."""

    build: Callable[[], nn.Module]
    inputs: Mapping[str, Tensor]
    family: str
    lineage: str
    source: str


def converted(workload: Workload, name: str, compressed: bool = False) -> ComputationGraph:
    """The workload as OpenVINO's converter sees it; `compressed` stores weights as float16, which is the converter's default."""
    with tempfile.TemporaryDirectory() as folder:
        return read_openvino(save(workload, Path(folder) / f"{name}.xml", compressed), name)


def save(workload: Workload, file: Path, compressed: bool = False) -> Path:
    """Writes the workload's model, its weights beside it."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # else importing openvino reports to its makers
    import openvino

    model = openvino.convert_model(
        _drawn(workload.build()), example_input=dict(workload.inputs), input={key: list(x.shape) for key, x in workload.inputs.items()}
    )
    for index, operation in enumerate(model.get_ordered_ops()):
        if MADE_UP.fullmatch(operation.get_friendly_name()):
            operation.set_friendly_name(f"{operation.get_type_name()}_{index}")
    openvino.save_model(model, file, compress_to_fp16=compressed)
    return file


def _drawn(module: nn.Module) -> nn.Module:
    """The module, for inference, with parameters and statistics between 1/2 and 1."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.uniform_(0.5, 1, generator=generator)
    return module.eval()


def _bert() -> nn.Module:
    return BertModel(BertConfig(attn_implementation="eager"))


def _sentence() -> dict[str, Tensor]:
    ids = torch.ones(1, TOKENS, dtype=torch.long)
    return {"input_ids": ids, "attention_mask": ids, "token_type_ids": ids}


WORKLOADS: dict[str, Workload] = {
    "inception-v3-openvino": Workload(
        InceptionV3, {"image": torch.ones(1, 3, SIZE, SIZE)}, "inception", "convolutional",
        f"datasets/build/inception_v3.py through OpenVINO, {SIZE} x {SIZE} images; batch 1; forward",
    ),
    "resnet-50-openvino": Workload(
        lambda: ResNet(RESNET_50), {"image": torch.ones(1, 3, 224, 224)}, "resnet", "convolutional",
        "datasets/build/resnet.py through OpenVINO, 224 x 224 images; batch 1; forward",
    ),
    "bert-base-openvino": Workload(
        _bert, _sentence(), "bert", "transformer",
        f"transformers BertModel, default configuration, eager attention, through OpenVINO; batch 1, length {TOKENS}; forward",
    ),
}  # fmt: skip
