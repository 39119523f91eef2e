"""GraphSAGE with max pooling (Hamilton et al., NeurIPS 2017; Zhou et al., NeurIPS 2020, equations 3 and 4)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch_geometric.utils import scatter

from gnnplace.policies.networks.glorot import glorot


class MaxPoolSage(nn.Module):
    """`rounds` rounds: `h_N(v) = max over neighbours u of sigmoid(W h_u + b)`, then `h_v <- relu(F [h_v, h_N(v)])`.

    A node without neighbours has `h_N(v) = 0`, below every sigmoid. Messages go along the given edges, from source to destination.
    """

    def __init__(self, features: int, *, width: int, rounds: int) -> None:
        super().__init__()
        before = [features, *[width] * (rounds - 1)]
        self.pool = nn.ModuleList(nn.Linear(size, width) for size in before)
        self.join = nn.ModuleList(nn.Linear(size + width, width) for size in before)
        glorot(self)

    def forward(self, nodes: Float[Tensor, "nodes features"], edges: Int64[Tensor, "2 edges"]) -> Float[Tensor, "nodes width"]:
        for pool, join in zip(self.pool, self.join, strict=True):
            near = largest_of_neighbours(torch.sigmoid(pool(nodes)), edges)
            nodes = torch.relu(join(torch.cat([nodes, near], dim=-1)))
        return nodes


def largest_of_neighbours(nodes: Float[Tensor, "nodes width"], edges: Int64[Tensor, "2 edges"]) -> Float[Tensor, "nodes width"]:
    """The elementwise maximum over the sources of each node's edges; 0 where it has none."""
    source, destination = edges
    return scatter(nodes[source], destination, dim=0, dim_size=len(nodes), reduce="max")
