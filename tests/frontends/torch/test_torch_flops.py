"""Rules of single ATen ops against counts by hand."""

from __future__ import annotations

import pytest
import torch
from support.training_steps import training_step
from torch import Tensor
from torch.nn import functional

from gnnplace.frontends.torch.flat_step import Loss
from gnnplace.graph import ComputationGraph


class Scaled(torch.nn.Module):
    """A trained scale, so that what follows has a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


def traced(*shape: int, loss: str) -> ComputationGraph:
    """The step of the loss of that name on an input of this shape, all of whose ops must have a rule."""
    step = training_step(Scaled(), LOSSES[loss], (torch.rand(*shape),), name=loss)
    assert not step.graph.uncounted
    return step.graph


def resized(mode: str, *size: int, antialias: bool = False) -> Loss:
    """The sum of the input, resized."""
    return lambda module, x: functional.interpolate(module(x), size=size, mode=mode, antialias=antialias).sum()


def pixels(module: torch.nn.Module, x: Tensor) -> Tensor:
    return functional.cross_entropy(module(x), torch.zeros(2, 4, 5, dtype=torch.int64))


LOSSES = {
    "glu": lambda module, x: functional.glu(module(x), dim=1).sum(),
    "bilinear": resized("bilinear", 8, 10),
    "bicubic": resized("bicubic", 8, 5),
    "linear": lambda module, x: resized("linear", 7)(module, x.flatten(2)),
    "trilinear": lambda module, x: resized("trilinear", 5, 3, 4)(module, x.unsqueeze(2)),
    "antialiased": resized("bilinear", 2, 10, antialias=True),
    "antialiased cubic": resized("bicubic", 3, 5, antialias=True),
    "nearest": resized("nearest", 8, 10),
    "nearest of its centre": resized("nearest-exact", 8, 10),
    "roll": lambda module, x: (module(x).roll((1, 2), dims=(1, 2)) * x).sum(),
    "pixels": pixels,
    "maximum 3d": lambda module, x: functional.max_pool3d(module(x), (1, 2, 5)).sum(),
    "mean 3d": lambda module, x: functional.avg_pool3d(module(x), 2).sum(),
    "adaptive": lambda module, x: functional.adaptive_max_pool2d(module(x), 2).sum(),
}


@pytest.mark.parametrize(
    ("loss", "kind", "canonical", "flops"),
    [
        ("glu", "aten.glu", "activation", 2 * 3 * 4 * 5),
        ("glu", "aten.glu_backward", "activation_grad", 2 * 6 * 4 * 5),
        ("bilinear", "aten.upsample_bilinear2d", "pool", 2 * 4 * 2 * 6 * 8 * 10),
        ("bilinear", "aten.upsample_bilinear2d_backward", "pool_grad", 2 * 4 * 2 * 6 * 8 * 10),
        ("bicubic", "aten.upsample_bicubic2d", "pool", 2 * 4 * 2 * 6 * 8 * 5),
        ("bicubic", "aten.upsample_bicubic2d_backward", "pool_grad", 2 * 4 * 2 * 6 * 8 * 5),
        ("linear", "aten.upsample_linear1d", "pool", 2 * 2 * 2 * 6 * 7),
        ("linear", "aten.upsample_linear1d_backward", "pool_grad", 2 * 2 * 2 * 6 * 7),
        ("trilinear", "aten.upsample_trilinear3d", "pool", 2 * 8 * 2 * 6 * 5 * 3 * 4),
        ("trilinear", "aten.upsample_trilinear3d_backward", "pool_grad", 2 * 8 * 2 * 6 * 5 * 3 * 4),
        ("antialiased", "aten._upsample_bilinear2d_aa", "pool", 2 * (4 * 2) * 2 * 6 * 2 * 10),
        ("antialiased", "aten._upsample_bilinear2d_aa_backward", "pool_grad", 2 * (4 * 2) * 2 * 6 * 2 * 10),
        ("antialiased cubic", "aten._upsample_bicubic2d_aa", "pool", 2 * 6 * 2 * 6 * 3 * 5),
        ("antialiased cubic", "aten._upsample_bicubic2d_aa_backward", "pool_grad", 2 * 6 * 2 * 6 * 3 * 5),
        ("nearest", "aten.upsample_nearest2d", "reshape", 0),
        ("nearest", "aten.upsample_nearest2d_backward", "reduce", 2 * 6 * 8 * 10),
        ("nearest of its centre", "aten._upsample_nearest_exact2d", "reshape", 0),
        ("nearest of its centre", "aten._upsample_nearest_exact2d_backward", "reduce", 2 * 6 * 8 * 10),
        ("roll", "aten.roll", "reshape", 0),
        ("maximum 3d", "aten.max_pool3d_with_indices", "pool", 2 * 6 * 2 * 1 * 10),
        ("maximum 3d", "aten.max_pool3d_with_indices_backward", "pool_grad", 2 * 6 * 2 * 1 * 10),
        ("mean 3d", "aten.avg_pool3d", "pool", 2 * 3 * 2 * 2 * 8),
        ("mean 3d", "aten.avg_pool3d_backward", "pool_grad", 2 * 3 * 2 * 2 * 8),
        ("adaptive", "aten.adaptive_max_pool2d", "pool", 2 * 6 * 4 * 5),
        ("adaptive", "aten.adaptive_max_pool2d_backward", "pool_grad", 2 * 6 * 4 * 5),
        ("pixels", "aten.nll_loss2d_forward", "loss", 2 * 6 * 4 * 5),
        ("pixels", "aten.nll_loss2d_backward", "loss", 2 * 6 * 4 * 5),
    ],
)
def test_flops_are_those_of_the_rule(loss: str, kind: str, canonical: str, flops: int) -> None:
    graph = traced(2, 6, 4, 5, loss=loss)
    found = graph.kind.among([kind])
    assert {graph.canonical_kind.values[index] for index in graph.canonical_kind.index[found]} == {canonical}
    assert set(graph.flops[found].tolist()) == {flops}


def test_a_loss_of_pixels_reads_one_class_each() -> None:
    graph = traced(2, 6, 4, 5, loss="pixels")
    (op,) = graph.kind.among(["aten.nll_loss2d_forward"]).nonzero()[0].tolist()
    labels, picked, out = 8 * 2 * 4 * 5, 4 * 2 * 4 * 5, 4 + 4
    assert graph.bytes_accessed[op] == labels + picked + out
