"""The image classifiers among the PyTorch workloads: their parameters are the published ones, their arithmetic is torch's own count."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from datasets.build.inverted_residual import SqueezeExcitation
from datasets.build.stochastic_depth import StochasticDepth
from datasets.build_torch import workload
from gnnplace.corpus import manifest

PRODUCTS = ("matmul", "batch_matmul", "conv", "conv_grad_input", "conv_grad_weight")
PUBLISHED = {
    "densenet-121": (7_978_856, 2.83), "densenet-201": (20_013_928, 4.29), "mobilenet-v2": (3_504_872, 0.30),
    "efficientnet-b0": (5_288_548, 0.39), "convnext-tiny": (28_589_128, 4.46),
}  # fmt: skip
"""Parameters, and billions of multiply-adds for an image forwards, rounded to two digits after the point."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_work_are_those_published(name: str) -> None:
    parameters, published = PUBLISHED[name]
    with torch.device("meta"):
        step = workload(name)
        with FlopCounterMode(display=False) as counter:
            step.loss(step.module, *step.inputs)
    assert sum(parameter.numel() for parameter in step.module.parameters()) == parameters
    multiply_adds = counter.get_total_flops() / 2 / len(step.inputs[0])
    assert multiply_adds == pytest.approx(published * 1e9, abs=5e6)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_graph_has_torchs_count_forwards_and_twice_that_backwards(name: str) -> None:
    """Only the images need no gradient. Torch's own count of a grouped convolution's backward is too large by the number of its groups."""
    graph = manifest.graph(name)
    with torch.device("meta"):
        step = workload(name)
        with FlopCounterMode(display=False) as counter:
            step.loss(step.module, *step.inputs)
        first = next(module for module in step.module.modules() if isinstance(module, nn.Conv2d))
        with FlopCounterMode(display=False) as stem:
            first(step.inputs[0])
    products, forward = graph.canonical_kind.among(PRODUCTS), graph.phase.among(["forward"])
    assert graph.flops[products & forward].sum() == counter.get_total_flops()
    assert graph.flops[products & ~forward].sum() == 2 * counter.get_total_flops() - stem.get_total_flops()


def test_without_groups_torchs_count_backwards_is_ours_too() -> None:
    graph = manifest.graph("densenet-121")
    with torch.device("meta"):
        step = workload("densenet-121")
        with FlopCounterMode(display=False) as counter:
            step.loss(step.module, *step.inputs).backward()
    assert graph.flops[graph.canonical_kind.among(PRODUCTS)].sum() == counter.get_total_flops()


def test_stochastic_depth_leaves_out_whole_rows_and_keeps_the_expectation() -> None:
    torch.manual_seed(0)
    rows = StochasticDepth(0.75)(torch.ones(4000, 2, 3, 1)).flatten(1)
    assert torch.equal(rows.amin(dim=1), rows.amax(dim=1))
    assert sorted(rows.unique().tolist()) == pytest.approx([0, 1 / 0.75])
    assert rows.mean().item() == pytest.approx(1, abs=0.03)
    assert torch.equal(StochasticDepth(0.1).eval()(rows), rows)


def test_excitation_scales_channels_by_a_gate_of_their_means() -> None:
    torch.manual_seed(0)
    layer, image = SqueezeExcitation(4, 2), torch.randn(3, 4, 5, 6)
    reduce, expand = layer.reduce.weight.flatten(1), layer.expand.weight.flatten(1)
    squeezed = image.mean(dim=(2, 3)) @ reduce.t() + layer.reduce.bias
    gate = (squeezed * squeezed.sigmoid()) @ expand.t() + layer.expand.bias
    torch.testing.assert_close(layer(image), image * gate.sigmoid()[:, :, None, None])
