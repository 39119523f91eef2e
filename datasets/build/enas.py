"""The generated families of Placeto (Addanki et al. 2019): cifar10, ptb and nmt, 32 members each, a function of family and index alone.

Placeto's own graphs come from the search of ENAS (cifar10, ptb) and from variations of an NMT network; which members it used is not
published. Here cells and variations are drawn from the same spaces: `enas-cifar10-00` to `enas-cifar10-31`, and so on.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from datasets.build import enas_cells, enas_recurrent, nmt_variations
from gnnplace.frontends.torch.step import TorchStep

Family = Literal["cifar10", "ptb", "nmt"]
FAMILIES: tuple[Family, ...] = get_args(Family)
MEMBERS = 32
IMAGES, SENTENCES = 160, 20
NAMES = tuple(f"enas-{family}-{index:02d}" for family in FAMILIES for index in range(MEMBERS))


def step(name: str) -> TorchStep:
    """The training step of a member, on torch's default device. Raises ValueError for an unknown name."""
    if name not in NAMES:
        raise ValueError(f"generated graph: {name!r} is none of {', '.join(f'enas-{f}-00 to -{MEMBERS - 1}' for f in FAMILIES)}")
    _, family, index = name.split("-")
    generator = np.random.default_rng([FAMILIES.index(family), int(index)])  # type: ignore[arg-type]
    return {"cifar10": cifar10, "ptb": ptb, "nmt": nmt}[family](generator)


def cifar10(generator: np.random.Generator) -> TorchStep:
    """A network of a sampled normal and a sampled reduction cell; Adam."""
    network = enas_cells.Network(enas_cells.sampled(generator), enas_cells.sampled(generator))
    images, classes = torch.rand(IMAGES, 3, 32, 32), torch.randint(enas_cells.CLASSES, (IMAGES,))
    return TorchStep(network, _class_loss, (images, classes))


def ptb(generator: np.random.Generator) -> TorchStep:
    """A language model of a sampled recurrent cell; plain SGD."""
    model = enas_recurrent.LanguageModel(enas_recurrent.sampled(generator))
    return TorchStep(model, _own_loss, _tokens(2, enas_recurrent.VOCABULARY, enas_recurrent.STEPS, SENTENCES), "sgd")


def nmt(generator: np.random.Generator) -> TorchStep:
    """A sampled variation of GNMT; Adam."""
    variation = nmt_variations.sampled(generator)
    tokens = _tokens(3, nmt_variations.VOCABULARY, variation.steps, variation.batch)
    return TorchStep(nmt_variations.Translator(variation), _own_loss, tokens)


def _tokens(count: int, below: int, steps: int, batch: int) -> tuple[Tensor, ...]:
    return tuple(torch.randint(below, (steps, batch)) for _ in range(count))


def _class_loss(module: nn.Module, images: Tensor, classes: Tensor) -> Tensor:
    return functional.cross_entropy(module(images), classes)


def _own_loss(module: nn.Module, *tokens: Tensor) -> Tensor:
    """The module returns its loss itself."""
    loss: Tensor = module(*tokens)
    return loss
