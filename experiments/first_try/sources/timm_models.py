"""The smallest model of every family of timm, with random weights.

    python -m experiments.first_try.sources.timm_models  # writes timm_models.json: the smallest of each family

A family is a module of timm; its models are built without memory to count their parameters.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

from experiments.first_try.cases import Kind, TorchCase
from experiments.first_try.sources.torchvision_library import torchvision

torchvision()
import timm  # noqa: E402  # it imports torchvision

KINDS = ("inference", "training")
BATCH, LARGE = (
    2,
    500,
)  # images; one of them where it has more pixels than LARGE x LARGE, so that eager PyTorch trains it in the limit of memory
PATH = Path(__file__).with_suffix(".json")


def names() -> list[str]:
    """The models in `timm_models.json`."""
    return sorted(json.loads(PATH.read_text()).values())


def case(name: str, kind: Kind) -> TorchCase:
    """A model with images of its own size."""
    torch.manual_seed(0)
    module = timm.create_model(name, pretrained=False)
    size = module.default_cfg["input_size"]
    return TorchCase(module, (torch.randn(1 if size[1] * size[2] > LARGE**2 else BATCH, *size),))


def smallest() -> dict[str, str]:
    """The model with the fewest parameters of each family."""
    found: dict[str, tuple[int, str]] = {}
    for family in timm.list_modules():
        for name in timm.list_models(module=family):
            try:
                with torch.device("meta"):
                    module = timm.create_model(name, pretrained=False)
            except Exception:  # a model that can't be built without memory; another of its family can
                continue
            size = sum(parameter.numel() for parameter in module.parameters())
            found[family] = min(found.get(family, (size, name)), (size, name))
    return {family: name for family, (_, name) in sorted(found.items())}


if __name__ == "__main__":
    PATH.write_text(json.dumps(smallest(), indent=1) + "\n")
