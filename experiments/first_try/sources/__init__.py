"""Where the inputs of the sweep come from: a module each."""

from __future__ import annotations

import importlib

from experiments.first_try.cases import Source

SOURCES = (
    "torch_modules",
    "torch_optimizers",
    "exportdb",
    "pyg_convolutions",
    "onnx_files",
    "torchvision_models",
    "timm_models",
    "transformers_types",
)


def source(name: str) -> Source:
    """A source by its name; its libraries are imported."""
    return importlib.import_module(f"experiments.first_try.sources.{name}")
