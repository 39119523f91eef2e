"""Segmentation and detection among the PyTorch workloads: published parameters, torch's count of products, and what the parts compute."""

from __future__ import annotations

import math

import pytest
import torch
from support.torch_checks import PRODUCTS, counted_products, flops_of, module_parameters, parameter_bytes
from torch import Tensor, nn
from torch.nn import functional

from datasets.build import deeplab_v3, retinanet, unet_segmentation
from datasets.build.torch_dense_prediction import WORKLOADS
from gnnplace.corpus import manifest

PYRAMIDS_OTHER_WAY = 9 * 256 * (2048 - 256)  # torchvision makes level 6 from 256 channels, the paper from 2,048
CLASSES_LESS = 9 * (91 - 80) * (9 * 256 + 1)  # COCO's 80 classes, of which torchvision counts 91
PARAMETERS = {
    "deeplab-v3": 42_004_074 - 2_365_205, "retinanet": 34_014_999 + PYRAMIDS_OTHER_WAY - CLASSES_LESS,
    "unet-segmentation": sum(9 * a * b + b for a, b in ((1, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 512),
                                                        (512, 512), (512, 1024), (1024, 1024)))
    + sum(4 * a * b + b + 9 * a * b + b + 9 * b * b + b for a, b in ((1024, 512), (512, 256), (256, 128), (128, 64))) + 65 * 2,
}  # fmt: skip
"""Torchvision's networks, for DeepLab without its auxiliary classifier; layer by layer for the U-Net."""


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_parameters_and_work(name: str) -> None:
    assert module_parameters(name) * 12 == parameter_bytes(name) == 12 * PARAMETERS[name]
    assert flops_of(manifest.graph(name), *PRODUCTS) == counted_products(name)


@pytest.mark.parametrize(("name", "layers"), [("deeplab-v3", 16), ("retinanet", 16), ("unet-segmentation", 9)])
def test_blocks_are_the_layers(name: str, layers: int) -> None:
    assert set(manifest.graph(name).block.tolist()) == {-1, *range(layers)}


def test_each_branch_of_the_pyramid_sees_as_far_as_its_rate() -> None:
    torch.manual_seed(0)
    pyramid, image = deeplab_v3.Pyramid(2).eval(), torch.randn(1, 2, 41, 41, requires_grad=True)
    for rate, branch in zip((0, *deeplab_v3.RATES), (pyramid.point, *pyramid.dilated.values()), strict=True):
        (gradient,) = torch.autograd.grad(branch(image)[0, :, 20, 20].sum(), image)
        seen = torch.nonzero(gradient.abs().sum(dim=(0, 1))).tolist()
        assert seen == [[20 + down, 20 + right] for down in sorted({-rate, 0, rate}) for right in sorted({-rate, 0, rate})]


def test_the_pyramid_mixes_its_branches_with_the_mean_of_the_image() -> None:
    torch.manual_seed(0)
    pyramid, image, joined = deeplab_v3.Pyramid(2).eval(), torch.randn(1, 2, 5, 7), []
    pyramid.mix.register_forward_pre_hook(lambda _, inputs: joined.append(inputs[0]))
    pyramid(image)
    whole = pyramid.whole(image.mean(dim=(2, 3))[:, :, None, None]).relu()
    torch.testing.assert_close(joined[0][:, -256:], whole.expand(-1, -1, 5, 7))
    torch.testing.assert_close(joined[0][:, :256], pyramid.point(image).relu())


def test_deep_lab_names_the_pixels_between_its_places_too() -> None:
    torch.manual_seed(0)
    model, image = deeplab_v3.DeepLab().eval(), torch.randn(1, 3, 65, 33)
    with torch.no_grad():
        mixed = model.pyramid(model.backbone(image)[-1])
        coarse = model.out(model.conv(mixed).clamp(min=0))
        assert coarse.shape == (1, 21, 5, 3)
        expected = functional.interpolate(coarse, (65, 33), mode="bilinear")
        torch.testing.assert_close(model(image), expected)


def test_a_crop_is_the_middle_of_what_the_way_down_had() -> None:
    torch.manual_seed(0)
    up, image, kept, joined = unet_segmentation.Up(4), torch.randn(1, 4, 5, 6), torch.randn(1, 2, 16, 20), []
    up.pair.register_forward_pre_hook(lambda _, inputs: joined.append(inputs[0]))
    assert up(image, kept).shape == (1, 2, 6, 8)
    torch.testing.assert_close(joined[0], torch.cat([kept[:, :, 3:13, 4:16], up.grow(image)], dim=1))


def test_the_u_net_keeps_what_the_figure_keeps_and_weighs_each_pixel() -> None:
    torch.manual_seed(0)
    model, image = unet_segmentation.UNet((2, 4, 8)).eval(), torch.randn(1, 1, 44, 44)
    logits = model(image)
    assert logits.shape == (1, 2, 4, 4)
    classes, weights = torch.randint(2, (1, 4, 4)), torch.zeros(1, 4, 4)
    weights[0, 1, 2] = 8.0
    expected = functional.cross_entropy(logits[:, :, 1, 2], classes[:, 1, 2]) / 2
    torch.testing.assert_close(unet_segmentation.weighted_loss(model, image, classes, weights), expected)


def test_the_focal_loss_is_that_of_the_paper() -> None:
    logits = torch.tensor([2.0, -1.0, 2.0, -1.0])
    p = torch.sigmoid(logits)
    expected = torch.cat([-0.25 * (1 - p[:2]) ** 2 * p[:2].log(), -0.75 * p[2:] ** 2 * (1 - p[2:]).log()])
    torch.testing.assert_close(retinanet.focal_loss(logits, torch.tensor([1.0, 1.0, 0.0, 0.0])), expected)


class Found(nn.Module):
    """Finds the same whatever it sees."""

    def __init__(self, logits: Tensor, offsets: Tensor) -> None:
        super().__init__()
        self.logits, self.offsets = logits, offsets

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        return self.logits, self.offsets


def test_the_detectors_loss_is_one_of_matched_boxes_and_of_anchors_that_count() -> None:
    torch.manual_seed(0)
    logits, offsets, classes, wanted = torch.randn(1, 5, 3), torch.randn(1, 5, 4), torch.eye(5)[None, :, :3], torch.randn(1, 5, 4)
    matched, counts = torch.tensor([[1.0, 1, 0, 0, 0]]), torch.tensor([[1.0, 1, 0, 1, 1]])
    of_classes = retinanet.focal_loss(logits[:, [0, 1, 3, 4]], classes[:, [0, 1, 3, 4]]).sum() / 2
    of_boxes = functional.smooth_l1_loss(offsets[:, :2], wanted[:, :2], reduction="sum", beta=1 / 9) / 2
    found = retinanet.loss(Found(logits, offsets), torch.zeros(1), classes, wanted, matched, counts)
    torch.testing.assert_close(found, of_classes + of_boxes)


def test_each_level_of_the_pyramid_adds_what_lies_above() -> None:
    torch.manual_seed(0)
    pyramid = retinanet.FeaturePyramid([256, 512, 1024, 2048])
    third, fourth, fifth = (torch.randn(1, 256 * 2 ** (i + 1), 12 // 2**i, 8 // 2**i) for i in range(3))
    levels = pyramid(third, fourth, fifth)
    assert [tuple(level.shape[2:]) for level in levels] == [(12, 8), (6, 4), (3, 2), (2, 1), (1, 1)]
    top = pyramid.lateral_5(fifth)
    middle = pyramid.lateral_4(fourth) + top.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
    torch.testing.assert_close(levels[1], pyramid.smooth_4(middle))
    bottom = pyramid.lateral_3(third) + middle.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
    torch.testing.assert_close(levels[0], pyramid.smooth_3(bottom))
    torch.testing.assert_close(levels[2], pyramid.smooth_5(top))
    torch.testing.assert_close(levels[3], pyramid.level_6(fifth))
    torch.testing.assert_close(levels[4], pyramid.level_7(levels[3].relu()))


def test_a_detector_gives_nine_boxes_a_place_and_believes_in_none_at_first() -> None:
    torch.manual_seed(0)
    model, image = retinanet.RetinaNet(classes=2).eval(), torch.rand(1, 3, 72, 136)
    nn.init.zeros_(model.classes.out.weight)
    with torch.no_grad():
        logits, offsets = model(image)
    assert retinanet.anchors(72, 136) == 9 * (9 * 17 + 5 * 9 + 3 * 5 + 2 * 3 + 1 * 2)
    assert logits.shape == (1, retinanet.anchors(72, 136), 2) and offsets.shape == (1, retinanet.anchors(72, 136), 4)
    torch.testing.assert_close(torch.sigmoid(logits), torch.full_like(logits, 0.01))


def test_a_subnet_keeps_the_outputs_of_an_anchor_together() -> None:
    torch.manual_seed(0)
    subnet, level = retinanet.Subnet(outputs=3), torch.randn(1, 256, 2, 2)
    hidden = level
    for convolution in subnet.convolutions.values():
        hidden = convolution(hidden).relu()
    place, anchor = (1, 0), 4
    expected = subnet.out(hidden)[0, 3 * anchor : 3 * anchor + 3, *place]
    torch.testing.assert_close(subnet(level)[0, 9 * math.prod((2, 1)) + anchor], expected)
