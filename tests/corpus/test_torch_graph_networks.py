"""The graph networks are those of PyTorch Geometric where it has them, and hold the parameters of their papers."""

from __future__ import annotations

import re

import pytest
import torch
from support.torch_checks import PRODUCTS, counted_products, flops_of, parameter_bytes
from torch import nn
from torch_geometric.nn.conv import GINConv, RGCNConv
from torch_geometric.nn.models import SchNet

from datasets.build import gin, rgcn, schnet
from gnnplace.corpus import manifest

GIN_LAYERS = 1 + 368 * 64 + 65 * 64 + 3 * (1 + 2 * 65 * 64) + 4 * 4 * 64
PARAMETERS = {
    "gin": GIN_LAYERS + (367 + 4 * 64) * 3 + 5 * 3,
    "r-gcn": 14_541 * 500 + 2 * (474 * 100 * 25 + 501 * 500) + 237 * 500,
    "schnet": 455_809,
}
"""SchNet's are those of the public model for QM9, the others follow from the sizes of their papers."""

SCHNET_PARTS = [
    (r"filter", "mlp"), (r"inward", "conv.lin1"), (r"outward\.0", "conv.lin2"), (r"outward\.2", "lin"),
    (r"out\.0", "lin1"), (r"out\.2", "lin2"),
]  # fmt: skip


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_and_products(name: str) -> None:
    assert parameter_bytes(name) == 12 * PARAMETERS[name]
    assert flops_of(manifest.graph(name), *PRODUCTS) == counted_products(name)


@pytest.mark.parametrize(("name", "layers"), [("gin", 5), ("r-gcn", 2), ("schnet", 6)])
def test_blocks_are_the_layers(name: str, layers: int) -> None:
    """GIN has a readout more than aggregations, that of the input."""
    assert manifest.graph(name).block.max() == layers - 1


def test_relations_are_parallel_branches() -> None:
    graph = manifest.graph("r-gcn")
    products = graph.kind.among(["aten.bmm"]) & graph.phase.among(["forward"]) & graph.layer.among(["layers.0"])
    assert products.sum() == 474 and len(set(graph.level[products].tolist())) == 1


def test_an_aggregation_is_the_published_one() -> None:
    torch.manual_seed(0)
    layer, nodes, edges = gin.Aggregation(4, 3), torch.randn(6, 4), torch.randint(6, (2, 9))
    nn.init.constant_(layer.epsilon, 0.3)
    published = GINConv(layer.perceptron, eps=0.3)
    torch.testing.assert_close(layer(nodes, *edges), torch.relu(layer.norm(published(nodes, edges))))


def test_every_layers_nodes_are_read_out() -> None:
    torch.manual_seed(0)
    model = gin.GIN(gin.Sizes(graphs=2, features=4, units=3, aggregations=2)).eval()
    nodes, edges, graph = torch.randn(5, 4), torch.randint(5, (2, 7)), torch.tensor([0, 1, 0, 1, 1])
    layers = [nodes, model.layers[0](nodes, *edges)]
    layers.append(model.layers[1](layers[1], *edges))
    summed = [torch.stack([layer[graph == number].sum(dim=0) for number in range(2)]) for layer in layers]
    expected = sum(readout.linear(sums) for readout, sums in zip(model.readouts, summed, strict=True))
    torch.testing.assert_close(model(nodes, *edges, graph), expected)


def test_a_relational_convolution_is_the_published_one() -> None:
    torch.manual_seed(0)
    sizes = rgcn.Sizes(entities=5, relations=2, triples=7, width=6, block=3)
    assert sizes.counts == (4, 3, 4, 3)
    layer, nodes = rgcn.Convolution(sizes).eval(), torch.randn(5, 6)
    nn.init.normal_(layer.relations)
    kind = torch.arange(4).repeat_interleave(torch.tensor(sizes.counts))
    source, target = torch.randint(5, (14,)), torch.arange(14) % 5
    published = RGCNConv(6, 6, num_relations=4, num_blocks=2, aggr="sum")
    published.weight.data = layer.relations.data
    published.root.data, published.bias.data = layer.own.weight.t(), layer.own.bias
    torch.testing.assert_close(layer(nodes, source, target, torch.ones(14)), published(nodes, torch.stack([source, target]), kind))
    share = torch.rand(14)
    plain = layer.own(nodes)
    for edge in range(14):
        plain[target[edge]] += share[edge] * nodes[source[edge]] @ torch.block_diag(*layer.relations[kind[edge]])
    torch.testing.assert_close(layer(nodes, source, target, share), plain)


def test_a_triple_is_scored_by_its_three_vectors() -> None:
    torch.manual_seed(0)
    sizes = rgcn.Sizes(entities=4, relations=2, triples=2, width=6, block=3)
    model, ends = rgcn.RGCN(sizes).eval(), (torch.tensor([0, 1, 2, 3]), torch.tensor([1, 0, 3, 2]), torch.ones(4))
    nn.init.normal_(model.entities)
    hidden = model.layers[1](torch.relu(model.layers[0](model.entities, *ends)), *ends)
    found = model(*ends, torch.tensor([2]), torch.tensor([1]), torch.tensor([3]))
    torch.testing.assert_close(found, (hidden[2] * model.relations.weight[1] * hidden[3]).sum()[None])


def test_schnet_is_the_published_one() -> None:
    torch.manual_seed(0)
    numbers, positions, molecule = torch.randint(1, 20, (8,)), 3 * torch.rand(8, 3), torch.arange(2).repeat_interleave(4)
    source, target = torch.tensor([(i, j) for i in range(8) for j in range(8) if i != j and i // 4 == j // 4]).t()
    pairs = torch.stack([source, target]), (positions[source] - positions[target]).norm(dim=1)
    sizes = schnet.Sizes(molecules=2, atoms=4, width=8, gaussians=5, interactions=2)
    ours = schnet.SchNet(sizes)
    published = SchNet(8, 8, num_interactions=2, num_gaussians=5, cutoff=schnet.CUTOFF, interaction_graph=lambda *_: pairs)
    given = dict(ours.named_parameters())
    for name, parameter in given.items():
        nn.init.normal_(parameter)
        for pattern, replacement in SCHNET_PARTS:
            name = re.sub(pattern, replacement, name)
        published.get_parameter(name).data.copy_(parameter)
    assert len(given) == len(list(published.parameters()))
    expected = published(numbers, positions, molecule)[:, 0]
    torch.testing.assert_close(ours(numbers, positions, source, target, molecule), expected, rtol=1e-4, atol=1e-4)
