"""Networks for images behind the PyTorch graphs compute what published code does, with the same parameters."""

from __future__ import annotations

import torch
import transformers
from support.published_modules import Parts, share

from datasets.build import regnet, resnet, shufflenet_v2, swin
from datasets.build.squeezenet import Fire, Widths

NORMED: Parts = [
    (r"conv\.weight$", "convolution.weight"), (r"norm\.(weight|bias)$", r"normalization.\1"), (r"\.skip\.", ".shortcut."),
]  # fmt: skip


def numbered(depths: tuple[int, ...], layer: str) -> Parts:
    """Our number of each layer, in a row, and the published one in its stage; `layer` has a place for each of the two."""
    places = [(stage, i) for stage, depth in enumerate(depths) for i in range(depth)]
    return [(rf"^(layers|blocks)\.{number}\.", layer.format(*place)) for number, place in enumerate(places)]


def tensor(output: torch.Tensor | tuple[torch.Tensor, ...]) -> torch.Tensor:
    """What a layer returns, or the first of it."""
    return output if isinstance(output, torch.Tensor) else output[0]


def test_swin_is_the_published_one() -> None:
    torch.manual_seed(0)
    ours, published = swin.Swin(), transformers.SwinForImageClassification(transformers.SwinConfig(num_labels=1000))
    rows: Parts = []
    for stage, depth in enumerate(swin.LAYERS):
        rows += [(rf"^layers\.{len(rows) + i}\.", f"swin.encoder.layers.{stage}.blocks.{i}.") for i in range(depth)]
        if stage + 1 < len(swin.LAYERS):
            rows.append((rf"^layers\.{len(rows)}\.", f"swin.encoder.layers.{stage}.downsample."))
    parts: Parts = [
        (r"^patches", "swin.embeddings.patch_embeddings.projection"), (r"^norm_before", "swin.embeddings.norm"),
        (r"^norm\.", "swin.layernorm."), (r"^out", "classifier"), *rows,
        (r"\.norm_1", ".layernorm_before"), (r"\.norm_2", ".layernorm_after"), (r"attention\.out", "attention.o_proj"),
        (r"attention\.bias$", "attention.relative_position_bias.relative_position_bias_table"),
        (r"mlp\.widen", "mlp.fc1"), (r"mlp\.narrow", "mlp.fc2"), (r"downsample\.reduce", "downsample.reduction"),
    ]  # fmt: skip
    share(ours, published, parts)
    for parameter in (*ours.parameters(), *published.parameters()):
        if parameter.dim() > 1:
            parameter.data.mul_(0.2)  # or the softmax is one-hot, and hides what is wrong
    blocks = [block for stage in published.swin.encoder.layers for block in stage.blocks]
    built: tuple[list[torch.Tensor], ...] = ([], [])  # the output of every layer, as the mean of the last one tells little of the first
    for outputs, layers in zip(built, ([layer for layer in ours.layers if isinstance(layer, swin.Layer)], blocks), strict=True):
        for layer in layers:
            layer.register_forward_hook(lambda _, __, output, outputs=outputs: outputs.append(tensor(output)))
    images = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        built[0].append(ours.eval()(images))
        built[1].append(published.eval()(images).logits)
    assert len(built[0]) == sum(swin.LAYERS) + 1
    for found, expected in zip(*built, strict=True):
        torch.testing.assert_close(found.flatten(), expected.flatten(), rtol=1e-4, atol=1e-4)


def test_regnet_is_the_published_one() -> None:
    torch.manual_seed(0)
    config = transformers.RegNetConfig(
        embedding_size=32, hidden_sizes=[48, 104, 208, 440], depths=[1, 3, 6, 6], groups_width=8, layer_type="y", num_labels=1000
    )
    ours, published = regnet.RegNet(regnet.SMALL), transformers.RegNetForImageClassification(config)
    parts: Parts = [
        (r"^stem", "regnet.embedder.embedder"), (r"^out", "classifier.1"), *numbered((1, 3, 6, 6), "regnet.encoder.stages.{}.layers.{}."),
        *NORMED, (r"\.conv_1\.", ".layer.0."), (r"\.conv_2\.", ".layer.1."), (r"\.conv_3\.", ".layer.3."),
        (r"squeeze\.reduce", "layer.2.attention.0"), (r"squeeze\.expand", "layer.2.attention.2"),
    ]  # fmt: skip
    share(ours, published, parts)
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), published.train()(images).logits, rtol=1e-3, atol=1e-3)


def test_the_backbone_is_the_published_resnet_50() -> None:
    torch.manual_seed(0)
    ours, published = resnet.Backbone(), transformers.ResNetModel(transformers.ResNetConfig()).train()
    parts: Parts = [
        (r"^stem", "embedder.embedder"), *numbered(resnet.RESNET_50.blocks, "encoder.stages.{}.layers.{}."), (r"projection", "shortcut"),
        (r"convolutions", "layer"), (r"\.conv\.", ".convolution."), (r"\.norm\.", ".normalization."),
    ]  # fmt: skip
    share(ours, published, parts)
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = published(images, output_hidden_states=True).hidden_states[1:]
        for found, stage in zip(ours(images), expected, strict=True):
            torch.testing.assert_close(found, stage, rtol=1e-3, atol=1e-3)


def test_a_stage_that_dilates_sees_what_the_strided_one_sees() -> None:
    """The algorithm "à trous": every second position of the dilated stage is a position of the strided one."""
    torch.manual_seed(0)
    strided, dilated = resnet.Backbone().eval(), resnet.Backbone(dilations=(1, 1, 1, 2)).eval()
    dilated.load_state_dict(strided.state_dict())
    images = torch.randn(1, 3, 97, 65)
    with torch.no_grad():
        expected, found = strided(images)[-1], dilated(images)[-1]
    assert (expected.shape[2:], found.shape[2:]) == ((4, 3), (7, 5))
    torch.testing.assert_close(found[:, :, ::2, ::2], expected)


def test_a_frozen_norm_is_batch_norm_in_eval_mode_that_learns_nothing() -> None:
    torch.manual_seed(0)
    frozen, expected, image = resnet.FrozenNorm(3), torch.nn.BatchNorm2d(3).eval(), torch.randn(2, 3, 4, 5)
    names = {"weight": "weight", "bias": "bias", "mean": "running_mean", "variance": "running_var"}
    for ours, theirs in names.items():
        getattr(frozen, ours).uniform_(0.5, 2)
        getattr(expected, theirs).data.copy_(getattr(frozen, ours))
    torch.testing.assert_close(frozen.train()(image), expected(image))
    assert not list(frozen.parameters())


def test_shuffling_takes_channels_of_the_two_halves_in_turn() -> None:
    left, right = torch.tensor([0.0, 1, 2]).view(1, 3, 1, 1), torch.tensor([10.0, 11, 12]).view(1, 3, 1, 1)
    assert shufflenet_v2.interleaved(left, right).flatten().tolist() == [0, 10, 1, 11, 2, 12]


def test_half_of_the_channels_pass_a_shuffled_block() -> None:
    torch.manual_seed(0)
    block, image = shufflenet_v2.Block(6, 6, 1), torch.randn(2, 6, 4, 4)
    assert torch.equal(block(image)[:, ::2], image[:, :3])
    torch.testing.assert_close(block(image)[:, 1::2], block.branch(image[:, 3:]))
    assert shufflenet_v2.Block(6, 8, 2)(image).shape == (2, 8, 2, 2)


def test_a_depthwise_convolution_of_a_shuffled_block_is_not_rectified() -> None:
    for stride in (1, 2):
        block = shufflenet_v2.Block(6, 6, stride)
        branches = [block.branch] if block.other is None else [block.branch, block.other]
        for convolution in (convolution for branch in branches for convolution in branch):
            depthwise = convolution.conv.groups > 1
            assert convolution.conv.kernel_size == ((3, 3) if depthwise else (1, 1))
            assert hasattr(convolution, "activation") != depthwise


def test_a_fire_module_expands_by_both_windows_what_it_has_squeezed() -> None:
    torch.manual_seed(0)
    fire, image = Fire(3, Widths(2, 4)), torch.randn(1, 3, 5, 5)
    squeezed = torch.einsum("oi,bihw->bohw", fire.squeeze.weight[:, :, 0, 0], image) + fire.squeeze.bias[:, None, None]
    torch.testing.assert_close(fire(image)[:, 4:], fire.expand_3(squeezed.relu()).relu())
    torch.testing.assert_close(fire(image)[:, :4], fire.expand_1(squeezed.relu()).relu())
    assert Fire(3, Widths(2, 4, pooled=True))(torch.randn(1, 3, 6, 6)).shape == (1, 8, 3, 3)
