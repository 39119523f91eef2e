"""The GNN encoder: message passing over the graph of units, along edges and against them, with what they carry.

Directions keep separate weights (GINE convolutions of PyG), sums are means over neighbours, and every unit also
sees the mean of all. Without message passing each unit is encoded from its own features: the ablation.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch_geometric.nn import GINEConv


class GNNEncoder(nn.Module):
    """Features -> Float["nodes width"]. `rounds` rounds of message passing; 0 leaves it out."""

    def __init__(self, node_features: int, edge_features: int, *, width: int = 64, rounds: int = 3) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(node_features, width), nn.ReLU(), nn.Linear(width, width))
        self.forward_convs = nn.ModuleList(_conv(width, edge_features) for _ in range(rounds))
        self.backward_convs = nn.ModuleList(_conv(width, edge_features) for _ in range(rounds))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(rounds))
        self.readout = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.LayerNorm(width))

    def forward(
        self,
        node: Float[Tensor, "nodes node_features"],
        edges: Int64[Tensor, "2 edges"],
        edge: Float[Tensor, "edges edge_features"],
    ) -> Float[Tensor, "nodes width"]:
        hidden = self.embed(node)
        for along, against, norm in zip(self.forward_convs, self.backward_convs, self.norms, strict=True):
            message = along(hidden, edges, edge) + against(hidden, edges.flip(0), edge)
            hidden = norm(hidden + torch.relu(message))
        everything = hidden.mean(dim=0, keepdim=True).expand_as(hidden) if len(self.norms) else torch.zeros_like(hidden)
        return self.readout(torch.cat([hidden, everything], dim=-1))


def _conv(width: int, edge_features: int) -> GINEConv:
    return GINEConv(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)), edge_dim=edge_features, aggr="mean")
