"""The image classifiers among the PyTorch workloads: their parameters are the published ones, their arithmetic is torch's own count."""

from __future__ import annotations

import pytest
import torch
from support.torch_checks import PRODUCTS, check_products_of_images, counted_products, flops_of, module_parameters, parameter_bytes
from torch import nn
from torch.nn import functional

from datasets.build import amoebanet, swin
from datasets.build.inverted_residual import SqueezeExcitation
from datasets.build.stochastic_depth import StochasticDepth
from datasets.build_torch import workload
from gnnplace.corpus import manifest

PUBLISHED = {
    "densenet-121": (7_978_856, 2.83), "densenet-201": (20_013_928, 4.29), "mobilenet-v2": (3_504_872, 0.30),
    "efficientnet-b0": (5_288_548, 0.39), "convnext-tiny": (28_589_128, 4.46),
    "amoebanet-a": (86_718_039, 23.16), "amoebanet-a-mobile": (5_086_102, 0.555),
    "squeezenet": (1_248_424, 0.82), "shufflenet-v2": (2_278_604, 0.145), "regnet-y-400mf": (4_344_144, 0.40),
    "regnet-y-8gf": (39_180_068, 7.96), "swin-t": (28_288_354, 4.49),
}  # fmt: skip
"""Parameters, and billions of multiply-adds for an image forwards, rounded to two digits after the point.

The tables of RegNet's paper round to 39.2 M and 8.0 billion; that of ShuffleNet V2 has 0.146 billion, more than the products.
"""


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_work_are_those_published(name: str) -> None:
    parameters, published = PUBLISHED[name]
    assert module_parameters(name) * 12 == parameter_bytes(name) == 12 * parameters
    with torch.device("meta"):
        images = len(workload(name).inputs[0])
    assert counted_products(name, backwards=False) / 2 / images == pytest.approx(published * 1e9, abs=5e6)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_graph_has_torchs_count_forwards_and_twice_that_backwards(name: str) -> None:
    check_products_of_images(name)


def test_without_groups_torchs_count_backwards_is_ours_too() -> None:
    assert flops_of(manifest.graph("densenet-121"), *PRODUCTS) == counted_products("densenet-121")


def test_stochastic_depth_leaves_out_whole_rows_and_keeps_the_expectation() -> None:
    torch.manual_seed(0)
    rows = StochasticDepth(0.75)(torch.ones(4000, 2, 3, 1)).flatten(1)
    assert torch.equal(rows.amin(dim=1), rows.amax(dim=1))
    assert sorted(rows.unique().tolist()) == pytest.approx([0, 1 / 0.75])
    assert rows.mean().item() == pytest.approx(1, abs=0.03)
    assert torch.equal(StochasticDepth(0.1).eval()(rows), rows)


def test_layers_of_swin_are_left_out_the_more_the_later_they_come() -> None:
    with torch.device("meta"):
        kept = [layer.residual.kept for layer in swin.Swin().layers if isinstance(layer, swin.Layer)]
    assert kept == pytest.approx([1 - 0.2 * layer / 11 for layer in range(12)])


def test_excitation_scales_channels_by_a_gate_of_their_means() -> None:
    torch.manual_seed(0)
    layer, image = SqueezeExcitation(4, 2), torch.randn(3, 4, 5, 6)
    reduce, expand = layer.reduce.weight.flatten(1), layer.expand.weight.flatten(1)
    squeezed = image.mean(dim=(2, 3)) @ reduce.t() + layer.reduce.bias
    gate = (squeezed * squeezed.sigmoid()) @ expand.t() + layer.expand.bias
    torch.testing.assert_close(layer(image), image * gate.sigmoid()[:, :, None, None])


def test_an_amoeba_cell_adds_up_the_layers_of_its_figure() -> None:
    torch.manual_seed(0)
    cell = amoebanet.Cell(6, 8, 6, reduces=False, halved=False).eval()
    p, h = torch.randn(2, 6, 5, 5), torch.randn(2, 8, 5, 5)
    projected, average, (separable, _), (kept, _) = cell.h(h), functional.avg_pool2d, cell.sides[1], cell.sides[2]
    assert isinstance(kept, nn.Identity)
    second = separable(p) + p
    third = projected + average(p, 3, 1, 1, count_include_pad=False)
    out = cell(p, h).split(6, dim=1)
    assert len(out) == len(amoebanet.NORMAL_OUTPUTS)
    for found, expected in zip(out, (p, second, third), strict=False):
        torch.testing.assert_close(found, expected)


def test_halving_sees_every_position_of_either_grid() -> None:
    halving, image = amoebanet.Halving(1, 2).eval(), torch.arange(25.0).view(1, 1, 5, 5)
    for parameter in (halving.even.weight, halving.odd.weight):
        nn.init.ones_(parameter)
    even, odd = halving(image)[0] * (1 + halving.norm.eps) ** 0.5
    torch.testing.assert_close(even, image[0, 0, ::2, ::2])
    torch.testing.assert_close(odd[:2, :2], image[0, 0, 1::2, 1::2])
    assert odd[2].abs().max() == 0 and odd[:, 2].abs().max() == 0
