"""The network of HSDAG (Duan et al., NeurIPS 2024): co-location sets, graph parsing, and the classifier of its groups.

*Co-location sets* (appendix G) are ops that are placed together because nothing parts them. `paper` joins an op and its
only consumer if it is the only producer of that consumer, so sets are chains. `code` is the authors' public code: each
op with one producer joins it, even if the producer has other consumers, so sets are trees. If A feeds B and C, these
are one set by `code` and three by `paper`. Either leaves an acyclic graph acyclic: a path that leaves a set can return
at its first op alone, which would have been a cycle before.

*Graph parsing* (section 2.4; Song et al., ICLR 2024) scores every edge, keeps the best edge of each node, and makes a
group of every piece that the kept edges connect. So the number of groups follows from the scores. The paper names a
GCN, the edge scores, the parsing and an MLP. The number of layers between them, their normalisation, and the pooling of
groups are those of the authors' public code:

1. Nodes' columns pass two layers, then two graph convolutions, which see edges without direction.
2. The score of an edge is sigmoid(MLP(z_v * z_u)). Each node keeps its best edge. One score stands for both directions:
   the code's two copies of an edge differ under dropout, and its parser then loses kept edges.
3. A third convolution and a sum over members embed a group. The embedding is multiplied by the sum of the scores of all
   edges inside the group, in both directions (by 1 without such edges). Only so does a gradient reach the scores.
4. Two layers give the group's embedding as many columns as nodes have, so that it can be added to them; an MLP gives it
   a device.

The code repeats steps 2 and 3 until nothing changes, which leaves one group of every connected graph. Here `levels` is
the number of repetitions, 1 as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from gnnplace.problems import Problem
from gnnplace.units.units import Units, allowed, numbered, unit_edges

Coarsening = Literal["paper", "code"]
Edges = Int64[np.ndarray, "2 edges"]
LAYERS, CONTENT_ROUNDS = 2, 1  # of the layers before and behind, and of the convolution that embeds groups
Drop = Callable[[Tensor], Tensor]
Keep = Callable[[int, Bool[Tensor, " edges"]], Bool[Tensor, " edges"]]
"""Of a level and the edges that the scores would keep: the edges that are kept."""


def co_located(problem: Problem, of_ops: Units, rule: Coarsening) -> Units:
    """The co-location sets of units. Units with different allowed devices stay apart."""
    sent, legal = unit_edges(problem.graph, of_ops), allowed(problem, of_ops)
    edges = np.stack([sent.src, sent.dst]).astype(np.int64)
    joined = joins(of_ops.num_units, edges, rule) & (legal[edges[0]] == legal[edges[1]]).all(axis=1)
    return numbered(problem.graph, of_ops.name, pieces(of_ops.num_units, edges[:, joined])[of_ops.unit])


def joins(nodes: int, edges: Edges, rule: Coarsening) -> Bool[np.ndarray, " edges"]:
    """Whether each of the distinct edges joins its ends to one set."""
    only_producer = np.bincount(edges[1], minlength=nodes)[edges[1]] == 1
    only_consumer = np.bincount(edges[0], minlength=nodes)[edges[0]] == 1
    return only_producer & only_consumer if rule == "paper" else only_producer


def pieces(nodes: int, edges: Edges) -> Int64[np.ndarray, " nodes"]:
    """The connected piece of each node, whatever the direction of edges; pieces are numbered by their first nodes."""
    table = coo_array((np.ones(edges.shape[1], np.int8), (edges[0], edges[1])), shape=(nodes, nodes))
    _, label = connected_components(table, directed=False)
    _, first, index = np.unique(label, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[index]


class Parsed(NamedTuple):
    """The group of every node, and the embedding and device logits of every group."""

    group: Int[Tensor, " nodes"]
    embedding: Float[Tensor, "groups columns"]
    logits: Float[Tensor, "groups devices"]


class GraphParsing(nn.Module):
    """Groups with logits of devices, from columns of nodes and the edges between them."""

    def __init__(self, columns: int, devices: int, *, width: int = 128, rounds: int = 2, levels: int = 1) -> None:
        super().__init__()
        self.levels = levels
        self.enter = nn.ModuleList(_normalised(before, width) for before in [columns] + [width] * (LAYERS - 1))
        self.around = Convolutions(width, rounds)
        self.edge = nn.ModuleList([_normalised(width, width), nn.Linear(width, 1)])
        self.content = Convolutions(width, CONTENT_ROUNDS)
        self.member, self.members = Residual(width), Residual(width)
        self.leave = nn.ModuleList(
            nn.Sequential(nn.Linear(width, after), nn.ReLU()) for after in [width] * (LAYERS - 1) + [columns]
        )
        self.device = nn.Sequential(nn.Linear(columns, width), nn.ReLU(), nn.Linear(width, devices))

    def forward(
        self, nodes: Float[Tensor, "nodes columns"], edges: Int64[Tensor, "2 edges"], keep: Keep, drop: Drop
    ) -> Parsed:
        """`edges` are distinct pairs of different nodes, whatever their direction."""
        hidden, group = _through(self.enter, nodes, drop), torch.arange(len(nodes), device=nodes.device)
        for level in range(self.levels):
            label, hidden = self._parse(hidden, edges, level, keep, drop)
            group = label[group]
            if level + 1 == self.levels or not (edges := between(label, edges)).shape[1]:
                break
        embedding = _through(self.leave, hidden, drop)
        return Parsed(group, embedding, self.device(embedding))

    def _parse(
        self, hidden: Float[Tensor, "nodes width"], edges: Int64[Tensor, "2 edges"], level: int, keep: Keep, drop: Drop
    ) -> tuple[Int[Tensor, " nodes"], Float[Tensor, "groups width"]]:
        """One level: the group of each node, and the groups as nodes of the next one."""
        neighbours = normalised(edges, len(hidden))
        hidden = self.around(hidden, neighbours, drop)
        score = torch.sigmoid(self.edge[1](drop(self.edge[0](hidden[edges[0]] * hidden[edges[1]])))).squeeze(-1)
        kept = keep(level, best_edges(score.detach(), edges, len(hidden)))
        label = torch.from_numpy(pieces(len(hidden), edges[:, kept].cpu().numpy())).to(hidden.device)
        groups = int(label.max()) + 1
        member = self.member(self.content(hidden, neighbours, drop))
        members = self.members(hidden.new_zeros(groups, hidden.shape[1]).index_add(0, label, member))
        return label, members * inner_scores(score, edges, label, groups).unsqueeze(-1)


class Convolutions(nn.Module):
    """Graph convolutions (Kipf and Welling, ICLR 2017) with a residual sum at the end."""

    def __init__(self, width: int, rounds: int) -> None:
        super().__init__()
        self.rounds = nn.ModuleList(GCNConv(width, width) for _ in range(rounds))
        self.norm = nn.LayerNorm(width)

    def forward(
        self, nodes: Float[Tensor, "nodes width"], neighbours: Tensor, drop: Drop
    ) -> Float[Tensor, "nodes width"]:
        """The nodes plus their convolved neighbours, normalised.

        `neighbours` is the matrix of `normalised`: one product of matrices, where PyG would store every message.
        """
        hidden = nodes
        for convolution in self.rounds:
            assert isinstance(convolution, GCNConv)
            hidden = drop(torch.relu(neighbours @ convolution.lin(hidden) + convolution.bias))
        return self.norm(nodes + hidden)


def normalised(edges: Int64[Tensor, "2 edges"], nodes: int) -> Tensor:
    """The sparse matrix `D^-1/2 (A + I) D^-1/2` of the undirected graph, D its degrees (Kipf and Welling, eq. 2)."""
    ways, weight = gcn_norm(torch.cat([edges, edges.flip(0)], dim=1), num_nodes=nodes)
    order = (ways[0] * nodes + ways[1]).argsort()
    return torch.sparse_coo_tensor(
        ways[:, order], weight[order], (nodes, nodes), is_coalesced=True, check_invariants=False
    )


class Residual(nn.Module):
    """A linear layer with a residual sum, normalised."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, rows: Float[Tensor, "rows width"]) -> Float[Tensor, "rows width"]:
        return self.norm(rows + self.linear(rows))


def best_edges(score: Float[Tensor, " edges"], edges: Int64[Tensor, "2 edges"], nodes: int) -> Bool[Tensor, " edges"]:
    """The edges that are the best of one of their ends; of equal scores the first edge wins."""
    rank = np.empty(len(score), np.int64)
    rank[np.argsort(-score.cpu().numpy(), kind="stable")] = np.arange(len(score))
    best = np.full(nodes, len(score))
    for end in edges.cpu().numpy():
        np.minimum.at(best, end, rank)
    return torch.from_numpy(np.isin(rank, best)).to(edges.device)


def inner_scores(
    score: Float[Tensor, " edges"], edges: Int64[Tensor, "2 edges"], label: Int[Tensor, " nodes"], groups: int
) -> Float[Tensor, " groups"]:
    """The sum of the scores of the edges inside each group, in both directions; 1 without such edges."""
    inside = label[edges[0]] == label[edges[1]]
    group = label[edges[0]][inside]
    sums = score.new_zeros(groups).index_add(0, group, 2 * score[inside])
    return torch.where(torch.bincount(group, minlength=groups) > 0, sums, 1.0)


def between(label: Int[Tensor, " nodes"], edges: Int64[Tensor, "2 edges"]) -> Int64[Tensor, "2 pairs"]:
    """The distinct pairs of different groups that an edge joins."""
    low, high = label[edges].sort(dim=0).values
    groups = int(label.max()) + 1
    pairs = torch.unique((low * groups + high)[low != high])
    return torch.stack([pairs // groups, pairs % groups])


def _normalised(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(before, after), nn.LayerNorm(after), nn.ReLU())


def _through(layers: nn.ModuleList, rows: Tensor, drop: Drop) -> Tensor:
    for layer in layers:
        rows = drop(layer(rows))
    return rows


class Dropout:
    """Dropout (Srivastava et al. 2014) that a number replays.

    It zeroes a share of its inputs and scales the others; `number` 0 zeroes none. The same number gives the same
    zeroes, call by call, on every device.
    """

    def __init__(self, share: float, number: int) -> None:
        self.share = share if number else 0.0
        self._generator = torch.Generator().manual_seed(number)

    def __call__(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if not self.share:
            return values
        factor = torch.rand(values.shape, generator=self._generator).ge_(self.share).div_(1 - self.share)
        return values * factor.to(values)
