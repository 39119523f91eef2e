"""The networks of diffusion in a latent space: published parameters, torch's count of products, and what sees what."""

from __future__ import annotations

import pytest
import torch
from support.torch_checks import PRODUCTS, counted_products, flops_of, parameter_bytes
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from datasets.build import dit, latent_unet
from gnnplace.corpus import manifest

SMALL_DIT = dit.Sizes(side=4, channels=2, width=8, heads=2, layers=2, classes=3)
SMALL_UNET = latent_unet.Sizes(channels=(32, 64), heads=2, context=5, latent=2)


@pytest.mark.parametrize(
    ("name", "parameters", "slots"),
    [("dit-xl-2", 675_129_632 - 256 * 1152, 12), ("stable-diffusion", 859_520_964, 12), ("stable-diffusion-inference", 859_520_964, 4)],
)
def test_parameters_are_the_published_number(name: str, parameters: int, slots: int) -> None:
    """The released DiT counts its positions, which are not trained."""
    assert parameter_bytes(name) == slots * parameters


@pytest.mark.parametrize("name", ["dit-xl-2", "stable-diffusion", "stable-diffusion-inference"])
def test_products_count_as_torch_counts_them(name: str) -> None:
    """The backward of attention in one kernel computes the scores once more than what torch counts: 7 to 6 with the forward pass."""
    graph = manifest.graph(name)
    attention = counted_products(name) - flops_of(graph, *PRODUCTS)
    scale = 1 if name.endswith("inference") else 7 / 6
    assert flops_of(graph, "attention") == scale * attention


@pytest.mark.parametrize(("name", "layers"), [("dit-xl-2", 28), ("stable-diffusion", 25), ("stable-diffusion-inference", 25)])
def test_blocks_are_the_layers(name: str, layers: int) -> None:
    assert manifest.graph(name).block.max() == layers - 1


def torchs(ours: nn.Module, query: Tensor, key: Tensor, value: Tensor, biases: Tensor | None = None) -> nn.MultiheadAttention:
    """Torch's attention with these weights of queries, keys and values."""
    theirs = nn.MultiheadAttention(len(query), ours.heads, kdim=key.shape[1], vdim=value.shape[1], batch_first=True)
    theirs._qkv_same_embed_dim = False  # or it would want the three in one
    for name, weight in (("q", query), ("k", key), ("v", value)):
        theirs.register_parameter(f"{name}_proj_weight", nn.Parameter(weight))
    theirs.in_proj_bias.data = torch.zeros(3 * len(query)) if biases is None else biases
    theirs.out_proj = ours.out
    return theirs


def test_a_layer_of_dit_is_told_shifts_scales_and_gates_in_the_published_order() -> None:
    torch.manual_seed(0)
    block, hidden, condition = dit.Block(8, 2), torch.randn(3, 4, 8), torch.randn(3, 8)
    rows = (condition * condition.sigmoid()) @ block.condition.weight.t() + block.condition.bias
    told = rows.view(3, 6, 1, 8).transpose(0, 1)
    attention = torchs(block.attention, *block.attention.qkv.weight.chunk(3), block.attention.qkv.bias)
    seen = nn.functional.layer_norm(hidden, (8,), eps=1e-6) * (1 + told[1]) + told[0]
    between = hidden + told[2] * attention(seen, seen, seen)[0]
    inner = block.up(nn.functional.layer_norm(between, (8,), eps=1e-6) * (1 + told[4]) + told[3])
    gelu = inner / 2 * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (inner + 0.044715 * inner**3)))
    torch.testing.assert_close(block(hidden, condition), between + told[5] * block.down(gelu))


def test_dits_layers_see_patches_with_positions_and_the_sum_of_time_and_class() -> None:
    torch.manual_seed(0)
    model, seen = dit.DiT(SMALL_DIT), []
    nn.init.normal_(model.position)
    for part in (*model.layers, model.head):
        part.register_forward_pre_hook(lambda _, inputs: seen.append(inputs))
    latents, waves, classes = torch.randn(2, 2, 4, 4), torch.randn(2, dit.WAVES), torch.tensor([1, 3])
    model(latents, waves, classes)
    condition = model.time(waves) + model.label.weight[classes]
    expected = model.patches(latents).flatten(2).mT + model.position
    for (hidden, told), layer in zip(seen.copy(), (*model.layers, None), strict=True):
        torch.testing.assert_close(hidden, expected)
        torch.testing.assert_close(told, condition)
        expected = expected if layer is None else layer(hidden, told)


def test_a_layer_without_gates_is_none() -> None:
    """adaLN-Zero: with the condition's weights at 0 every layer gives back what enters it."""
    torch.manual_seed(0)
    block, hidden, condition = dit.Block(8, 2), torch.randn(3, 4, 8), torch.randn(3, 8)
    assert not torch.allclose(block(hidden, condition), hidden)
    nn.init.zeros_(block.condition.weight), nn.init.zeros_(block.condition.bias)
    assert torch.equal(block(hidden, condition), hidden)


def test_a_scale_of_zero_and_a_shift_of_zero_change_nothing() -> None:
    torch.manual_seed(0)
    hidden, none, one = torch.randn(3, 4, 8), torch.zeros(3, 8), torch.ones(3, 8)
    normal = nn.functional.layer_norm(hidden, (8,), eps=dit.EPSILON)
    modulated = dit.Modulated(8)
    torch.testing.assert_close(modulated(hidden, none, none), normal)
    torch.testing.assert_close(modulated(hidden, one, 2 * one), 3 * normal + 1)


def test_each_patch_comes_back_to_its_place() -> None:
    """Without layers a patch of the output depends on the same patch of the input alone."""
    torch.manual_seed(0)
    model = dit.DiT(dit.Sizes(side=4, channels=2, width=8, heads=2, layers=0, classes=3))
    latents = torch.randn(1, 2, 4, 4, requires_grad=True)
    output = model(latents, torch.randn(1, dit.WAVES), torch.tensor([1]))
    assert output.shape == (1, 4, 4, 4)
    (gradient,) = torch.autograd.grad(output[0, :, 2:, :2].sum(), latents)
    seen = gradient[0].abs().sum(dim=0) > 0
    assert seen.tolist() == [[False] * 4, [False] * 4, [True, True, False, False], [True, True, False, False]]


def test_a_channel_of_a_patch_is_the_heads_number_of_it() -> None:
    model = dit.DiT(dit.Sizes(side=4, channels=2, width=8, heads=2, layers=0, classes=3))
    model.head.forward = lambda hidden, condition: torch.arange(64.0).view(1, 4, 16)  # [row column channel] of each patch
    output = model(torch.zeros(1, 2, 4, 4), torch.zeros(1, dit.WAVES), torch.tensor([1]))
    assert output[0, 3, 2:, :2].flatten().tolist() == [32 + 3, 32 + 7, 32 + 11, 32 + 15]


def test_the_loss_of_a_variance_is_the_divergence_of_the_steps() -> None:
    torch.manual_seed(0)
    model, latents, noise = dit.DiT(SMALL_DIT), torch.randn(2, 2, 4, 4), torch.randn(2, 2, 4, 4)
    least, largest, moves = torch.tensor([-3.0, -2.0]), torch.tensor([-1.0, -1.5]), torch.tensor([0.4, 0.3])
    condition = (torch.randn(2, dit.WAVES), torch.tensor([1, 3]))
    found, share = model(latents, *condition).chunk(2, dim=1)
    lowest, highest, move = (value[:, None, None, None] for value in (least, largest, moves))
    log_variance = (share + 1) / 2 * highest + (1 - share) / 2 * lowest
    apart = kl_divergence(Normal(move * noise, (lowest / 2).exp()), Normal(move * found.detach(), (log_variance / 2).exp()))
    expected = nn.functional.mse_loss(found, noise) + apart.mean()
    loss = dit.loss(model, latents, *condition, noise, torch.stack([least, largest, moves]))
    torch.testing.assert_close(loss, expected)
    ours, theirs = (torch.autograd.grad(value, model.head.out.weight, retain_graph=True)[0] for value in (loss, expected))
    torch.testing.assert_close(ours, theirs)


def test_the_way_up_takes_what_the_way_down_left_last_first() -> None:
    torch.manual_seed(0)
    model, taken = latent_unet.LatentUNet(SMALL_UNET), []
    for stage in model.stages:
        stage.register_forward_hook(lambda _, inputs, output: taken.append((inputs[0], output)))
    noise = model(torch.randn(1, 2, 8, 8), torch.randn(1, 32), torch.randn(1, 7, 5))
    assert noise.shape == (1, 2, 8, 8)
    assert len(taken) == 6 + 1 + 6
    for number in range(7, 13):
        (entering, _), (_, before), (_, kept) = taken[number], taken[number - 1], taken[12 - number]
        assert torch.equal(entering, torch.cat([before, kept], dim=1))


@pytest.mark.parametrize("after", [32, 64])
def test_a_residual_block_adds_two_convolutions_around_the_time(after: int) -> None:
    torch.manual_seed(0)
    block, image, time = latent_unet.Residual(32, after, 5), torch.randn(2, 32, 4, 4), torch.randn(2, 5)
    silu, norm = nn.SiLU(), nn.functional.group_norm
    for parameter in block.parameters():
        nn.init.normal_(parameter)
    first = block.conv_1(silu(norm(image, 32, block.norm_1.weight, block.norm_1.bias)))
    first = first + block.time(silu(time)).view(2, after, 1, 1)
    second = block.conv_2(silu(norm(first, 32, block.norm_2.weight, block.norm_2.bias)))
    torch.testing.assert_close(block(image, time), second + (image if after == 32 else block.skip(image)), rtol=1e-4, atol=1e-3)


def test_a_transformer_of_the_u_net_adds_each_part_to_what_enters_it() -> None:
    torch.manual_seed(0)
    layer, image, text = latent_unet.Transformer(32, SMALL_UNET), torch.randn(2, 32, 2, 3), torch.randn(2, 7, 5)
    own, cross = (torchs(part, part.query.weight, part.key.weight, part.value.weight) for part in (layer.own, layer.cross))
    hidden = layer.inward(layer.norm(image)).view(2, 32, 6).mT
    seen = layer.norm_1(hidden)
    hidden = hidden + own(seen, seen, seen)[0]
    hidden = hidden + cross(layer.norm_2(hidden), text, text)[0]
    inner, gate = layer.mlp.up(layer.norm_3(hidden)).split(4 * 32, dim=2)
    hidden = hidden + layer.mlp.down(inner * nn.functional.gelu(gate))
    torch.testing.assert_close(layer(image, text), image + layer.outward(hidden.mT.reshape(2, 32, 2, 3)))


@pytest.mark.parametrize("stage", [1, 2, 6, 10, 12])
def test_transformers_see_the_text_and_their_image(stage: int) -> None:
    """At the higher resolution and in the middle, nowhere else."""
    torch.manual_seed(0)
    model = latent_unet.LatentUNet(SMALL_UNET)
    has = [any(isinstance(part, latent_unet.Transformer) for part in stage.parts) for stage in model.stages]
    assert [number for number, there in enumerate(has) if there] == [1, 2, 6, 10, 11, 12]
    (part,) = (part for part in model.stages[stage].parts if isinstance(part, latent_unet.Transformer))
    image, text = torch.randn(1, part.outward.out_channels, 2, 2, requires_grad=True), torch.randn(1, 7, 5, requires_grad=True)
    by_image, by_text = torch.autograd.grad(part(image, text)[0, :, 0, 0].sum(), (image, text))
    assert (by_image.abs().sum(dim=1) > 0).all() and (by_text.abs().sum(dim=2) > 0).all()
