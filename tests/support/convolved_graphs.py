"""Small networks of PyTorch Geometric's convolutions on a graph of four nodes, as steps whose sizes are those of the example."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

import gnnplace as gp
from gnnplace.frontends.torch.known_values import Sizes

EDGES = torch.tensor([[0, 1, 2, 2, 3, 0], [1, 1, 0, 2, 2, 3]])  # two self-loops
CONVOLUTIONS = (GCNConv, GATConv, SAGEConv)


class Net(nn.Module):
    """Two convolutions on edges that are an input, and a head."""

    def __init__(self, convolution: type[nn.Module]) -> None:
        super().__init__()
        self.first, self.second, self.head = convolution(3, 4), convolution(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.head(self.second(self.first(x, edges).relu(), edges))


class Branches(nn.Module):
    """The sum of a convolution and of a linear layer, which meet on one device."""

    def __init__(self, convolution: type[nn.Module]) -> None:
        super().__init__()
        self.convolution, self.linear = convolution(3, 4), nn.Linear(3, 4)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.convolution(x, edges) + self.linear(x)


class Layer(nn.Module):
    """A convolution on edges of its own."""

    def __init__(self, convolution: type[nn.Module], width: int) -> None:
        super().__init__()
        self.convolution = convolution(width, 4)
        self.register_buffer("edges", EDGES)

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution(x, self.edges).relu()


def layers(convolution: type[nn.Module]) -> nn.Sequential:
    return nn.Sequential(Layer(convolution, 3), Layer(convolution, 4), nn.Linear(4, 2))


def loss(net: nn.Module, *inputs: Tensor) -> Tensor:
    return net(*inputs).square().sum()


def step(net: nn.Module, trains: bool, *inputs: Tensor, sizes: Sizes = "example") -> gp.TorchStep | gp.TorchInference:
    """A step of the network on these inputs behind features of the nodes."""
    given = (torch.randn(4, 3), *inputs)
    return gp.TorchStep(net, loss, given, sizes=sizes) if trains else gp.TorchInference(net, given, sizes)
