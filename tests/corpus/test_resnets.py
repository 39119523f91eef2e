"""Residual networks and Inception-V3 in PyTorch: parameters and work as published, inference as training's forward pass."""

from __future__ import annotations

import pytest
import torch
from support.torch_checks import check_products_of_images, module_parameters, parameter_bytes
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from datasets.build import resnet
from datasets.build.inception_v3 import InceptionV3
from datasets.build.resnet import ResNet, Sizes
from gnnplace.corpus import manifest

PUBLISHED = {
    resnet.RESNET_18: (11_689_512, 1.81), resnet.RESNET_50: (25_557_032, 4.09), resnet.RESNET_101: (44_549_160, 7.80),
    resnet.RESNEXT_50: (25_028_904, 4.23), resnet.WIDE_RESNET_50: (68_883_240, 11.40),
}  # fmt: skip
"""Parameters, and billions of multiply-adds for an image of 224 x 224."""


@pytest.mark.parametrize("sizes", PUBLISHED)
def test_parameters_and_work_are_those_published(sizes: Sizes) -> None:
    parameters, published = PUBLISHED[sizes]
    with torch.device("meta"):
        network = ResNet(sizes)
        with FlopCounterMode(display=False) as counter:
            assert network(torch.rand(2, 3, 224, 224)).shape == (2, 1000)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    assert counter.get_total_flops() / 4 == pytest.approx(published * 1e9, abs=2e7)


def test_inception_has_its_auxiliary_head_in_training_alone() -> None:
    with torch.device("meta"):
        whole, image = InceptionV3(), torch.rand(1, 3, 299, 299)
        logits, early = whole(torch.rand(2, 3, 299, 299))
        with FlopCounterMode(display=False) as counter:
            assert whole.eval()(image).shape == (1, 1000)
        assert sum(parameter.numel() for parameter in whole.parameters()) == 27_161_264
        assert sum(parameter.numel() for parameter in InceptionV3(auxiliary=False).parameters()) == 23_834_568
    assert logits.shape == early.shape == (2, 1000)
    assert counter.get_total_flops() / 2 == pytest.approx(5.71e9, abs=2e7)


def test_a_block_adds_its_projected_input() -> None:
    torch.manual_seed(0)
    block, image = ResNet(resnet.RESNET_18).blocks[2].eval(), torch.randn(2, 64, 6, 6)  # the first of the second stage
    first, second = (nn.Sequential(part.conv, part.norm) for part in block.convolutions)
    expected = torch.relu(second(torch.relu(first(image))) + block.projection.norm(block.projection.conv(image)))
    torch.testing.assert_close(block(image), expected)
    assert expected.shape == (2, 128, 3, 3)
    kept = ResNet(resnet.RESNET_18).blocks[1]
    assert isinstance(kept.projection, nn.Identity)


@pytest.mark.parametrize("name", ["resnet-18", "resnext-50", "wide-resnet-50"])
def test_training_graphs_hold_parameters_and_moments_and_torchs_count(name: str) -> None:
    assert parameter_bytes(name) == 12 * module_parameters(name)
    check_products_of_images(name)


@pytest.mark.parametrize("name, file", [("resnet-50", "resnet-50-openvino"), ("inception-v3", "inception-v3-openvino")])
def test_inference_graphs_cost_what_the_same_network_costs_through_openvino(name: str, file: str) -> None:
    ours, through = manifest.graph(f"{name}-inference"), manifest.graph(file)
    for kinds in (("matmul", "conv"), ("pool",)):
        assert ours.flops[ours.canonical_kind.among(kinds)].sum() == 32 * through.flops[through.canonical_kind.among(kinds)].sum()
