"""Audio, graph networks and the mixer among the PyTorch workloads: parameters, arithmetic, and what their layers compute."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from support.torch_checks import PRODUCTS, counted_products, flops_of, module_parameters, parameter_bytes
from torch import nn
from torch.nn import functional

from datasets.build import gat, graphsage, mlp_mixer, pointnet, vq_vae, wavenet
from gnnplace.corpus import manifest
from gnnplace.frontends.torch.calls import Call
from gnnplace.frontends.torch.flops import flops
from gnnplace.frontends.torch.kinds import canonical_kind

GATES, SKIP, ONWARD = (3 * 512 + 1) * 1024, 513 * 256, 513 * 512
ENDS = (3 + 1) * 512 + 257 * (256 + 256)


def normed(*widths: int) -> int:
    """Weights, biases and batch norm of layers of these widths."""
    return sum(before * after + 3 * after for before, after in pairwise(widths))


POINT_HEAD = normed(1024, 512, 256)
PARAMETERS = {
    "wavenet-2x18": 18 * (GATES + SKIP + ONWARD) - ONWARD + ENDS,
    "wavenet-4x36": 36 * (GATES + SKIP + ONWARD) - ONWARD + ENDS,
    "graphsage": 2 * 602 * 128 + 2 * 256 * 128 + 256 * 41 + 41,
    "gat": (50 * 1024 + 3 * 1024) + (1024 * 1024 + 3 * 1024) + (1024 * 726 + 3 * 726),
    "mlp-mixer-b16": 59_880_472,
    "pointnet": (normed(3, 64, 128, 1024) + POINT_HEAD + 257 * 9) + normed(3, 64, 64)
    + (normed(64, 64, 128, 1024) + POINT_HEAD + 257 * 64**2) + normed(64, 64, 128, 1024) + POINT_HEAD + 257 * 40,
    "vq-vae": (48 + 1) * 256 + 2 * (16 * 256 + 1) * 256 + (48 * 256 + 3) + 4 * (10 * 256 + 2) * 256 + 257 * 64 + 512 * 64 + 65 * 256,
}  # fmt: skip
"""The mixer's are published, the others follow from the published sizes, layer by layer."""

BLOCKS = {"wavenet-2x18": 18, "wavenet-4x36": 36, "graphsage": 2, "gat": 3, "mlp-mixer-b16": 12, "pointnet": 5, "vq-vae": 11}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_and_work(name: str) -> None:
    assert module_parameters(name) * 12 == parameter_bytes(name) == 12 * PARAMETERS[name]
    assert flops_of(manifest.graph(name), *PRODUCTS) == counted_products(name)


@pytest.mark.parametrize(("name", "layers"), BLOCKS.items())
def test_blocks_are_the_layers(name: str, layers: int) -> None:
    assert manifest.graph(name).block.max() == layers - 1


def test_wavenet_hears_the_past_of_its_dilations_and_nothing_later() -> None:
    torch.manual_seed(0)
    sizes = wavenet.Sizes(stacks=2, layers=4, channels=3, skip_channels=16)
    assert sizes.dilations == (1, 2, 1, 2)
    model, audio = wavenet.WaveNet(sizes), torch.randn(1, 1, 30, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(audio)[20].sum(), audio)
    past = (sizes.window - 1) * (1 + sum(sizes.dilations))  # the first convolution's and each layer's
    assert torch.nonzero(gradient.flatten()).flatten().tolist() == list(range(20 - past, 21))


def test_an_aggregation_joins_a_node_to_the_mean_of_its_neighbours() -> None:
    torch.manual_seed(0)
    layer, nodes = graphsage.Aggregation(4, 3), torch.randn(7, 4)
    source, target = torch.tensor([3, 0, 6, 6]), torch.tensor([0, 0, 1, 1])
    mean = torch.stack([(nodes[3] + nodes[0]) / 2, nodes[6]])
    expected = torch.cat([layer.own(nodes[:2]), layer.neighbours(mean)], dim=1)
    torch.testing.assert_close(layer(nodes, source, target, kept=2), expected)


def test_a_minibatch_holds_what_each_layer_needs() -> None:
    assert graphsage.FULL.nodes == (146_432, 5_632, 512)


def test_graph_attention_is_attention_with_the_edges_as_mask() -> None:
    torch.manual_seed(0)
    layer, nodes = gat.Attention(4, 3, heads=2), torch.randn(5, 4)
    nn.init.normal_(layer.bias)
    source, target = torch.tensor([0, 1, 2, 3, 4, 1, 4]), torch.tensor([0, 1, 2, 3, 4, 2, 2])
    hidden = layer.linear(nodes).view(5, 2, 3)
    sent, received = torch.einsum("nhf,hf->hn", hidden, layer.to_source), torch.einsum("nhf,hf->hn", hidden, layer.to_target)
    scores = functional.leaky_relu(received[:, :, None] + sent[:, None, :], 0.2)
    mask = torch.full((5, 5), -torch.inf).index_put((target, source), torch.tensor(0.0))
    expected = torch.einsum("hts,shf->thf", (scores + mask).softmax(dim=2), hidden) + layer.bias
    torch.testing.assert_close(layer(nodes, source, target), expected)


def test_a_mixers_first_perceptron_mixes_patches_and_its_second_channels() -> None:
    torch.manual_seed(0)
    layer, hidden = mlp_mixer.Layer(patches=4, kept=1.0), torch.randn(1, 4, mlp_mixer.WIDTH)
    nn.init.zeros_(layer.channels.narrow.weight), nn.init.zeros_(layer.channels.narrow.bias)
    normal = functional.layer_norm(hidden, (mlp_mixer.WIDTH,))
    expected = torch.stack([hidden[0, :, i] + layer.tokens(normal[0, :, i]) for i in range(3)], dim=1)
    torch.testing.assert_close(layer(hidden)[0, :, :3], expected)


def test_points_have_no_order() -> None:
    torch.manual_seed(0)
    model, points = pointnet.PointNet().eval(), torch.randn(2, 3, 9)
    nn.init.normal_(model.stages[0].out.weight, std=0.1)
    logits, _ = model(points)
    assert not torch.allclose(logits, model(points.flip(1))[0])
    torch.testing.assert_close(model(points[:, :, torch.randperm(9)])[0], logits)


def test_points_are_not_turned_at_first_which_the_loss_likes() -> None:
    model, points, classes = pointnet.PointNet().eval(), torch.randn(2, 3, 9), torch.tensor([3, 5])
    assert torch.equal(model.stages[0](points), torch.eye(3).expand(2, 3, 3))
    entropy = functional.cross_entropy(model(points)[0], classes)
    torch.testing.assert_close(pointnet.loss(model, points, classes), entropy)
    with torch.no_grad():
        model.stages[2].out.bias.mul_(2)  # 4 I - I, squared: 9 on each of 64 places of the diagonal
    entropy = functional.cross_entropy(model(points)[0], classes)
    torch.testing.assert_close(pointnet.loss(model, points, classes), entropy + 0.001 * 9 * 64)


def test_the_codebook_gives_the_nearest_code() -> None:
    torch.manual_seed(0)
    book, vectors = vq_vae.Codebook(vq_vae.Sizes(codes=20, code_width=3)), torch.randn(50, 3)
    nearest = torch.cdist(vectors, book.codes.weight).argmin(dim=1)
    assert len(nearest.unique()) > 5
    torch.testing.assert_close(book(vectors), book.codes.weight[nearest])


def test_codes_learn_from_their_distance_alone_and_the_encoder_from_the_image_too() -> None:
    torch.manual_seed(0)
    model, image = vq_vae.VQVAE(vq_vae.Sizes(units=4, codes=6, code_width=3)), torch.randn(2, 3, 8, 8)
    book, built = model.layers[model.encoding], {}
    for place in (model.encoding - 1, model.encoding, len(model.layers) - 1):
        model.layers[place].register_forward_hook(lambda _, __, output, place=place: built.update({place: output}))
    loss = model(image)
    encoded = built[model.encoding - 1].permute(0, 2, 3, 1).flatten(0, 2)
    apart = functional.mse_loss(built[model.encoding], encoded)
    torch.testing.assert_close(loss, functional.mse_loss(built[len(model.layers) - 1], image) + 1.25 * apart)
    ours, expected = (torch.autograd.grad(value, book.codes.weight, retain_graph=True)[0] for value in (loss, apart))
    torch.testing.assert_close(ours, expected)
    first = model.layers[0][0].weight
    ours, distance = (torch.autograd.grad(value, first, retain_graph=True)[0] for value in (loss, 0.25 * apart))
    assert not torch.allclose(ours, distance)


def test_scatters_that_reduce_cost_one_flop_for_each_element() -> None:
    scores, places, largest = torch.rand(7, 2), torch.zeros(7, 2, dtype=torch.int64), torch.zeros(3, 2)
    arguments = {"self": largest, "dim": 0, "index": places, "src": scores, "reduce": "amax", "include_self": False}
    call = Call(torch.ops.aten.scatter_reduce.two, arguments, (largest,))
    assert (canonical_kind(call), flops(call)) == ("scatter", 14)
