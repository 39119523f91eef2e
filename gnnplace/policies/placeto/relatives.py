"""Relatives of groups: which groups feed a group, and which groups' ops lead to its ops.

Placeto's ancestors are those in its graph of groups. The graphs of groups here have cycles, since a variable stands
with its update: nearly all groups of a training step would be ancestors of each other. So a group is an ancestor of
another if a path of ops leads from one to the other. It may be its descendant, too; it is never its own.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

Sums = Literal["sum", "mean"]


class Relatives(NamedTuple):
    """The relatives in each graph: weights of parents and of children, ancestors, and which nodes have members.

    `from_parents[i, v, u]` weighs parent u of node v in graph i: 1, or 1 over the number of parents; 0 for other nodes.
    """

    from_parents: Float[Tensor, "graphs nodes nodes"]
    from_children: Float[Tensor, "graphs nodes nodes"]
    ancestors: Bool[Tensor, "graphs nodes nodes"]
    used: Bool[Tensor, "graphs nodes"]


def relatives(
    feeds: Bool[Tensor, "graphs nodes nodes"],
    before: Bool[Tensor, "graphs nodes nodes"],
    used: Bool[Tensor, "graphs nodes"],
    sums: Sums,
) -> Relatives:
    """The relatives: node u feeds node v if `feeds[i, u, v]`, and is an ancestor of it if `before[i, v, u]`."""
    feeds = others(feeds)
    return Relatives(weights(feeds.transpose(1, 2), sums), weights(feeds, sums), others(before), used)


def leading_to(
    edges: Int64[np.ndarray, "2 edges"], group: Int64[np.ndarray, " ops"], groups: int
) -> Bool[np.ndarray, "groups groups"]:
    """Entry `[v, u]` is True if a path of ops leads from group u to group v.

    The edges are in topological order of their destinations.
    """
    # sets of groups, as the bits of integers
    bits, before = [1 << number for number in group.tolist()], [0] * len(group)
    for src, dst in edges.T.tolist():
        before[dst] |= before[src] | bits[src]
    of_group = [0] * groups
    for number, ancestors in zip(group.tolist(), before, strict=True):
        of_group[number] |= ancestors
    size = -(-groups // 8)
    rows = np.frombuffer(b"".join(ancestors.to_bytes(size, "little") for ancestors in of_group), np.uint8).reshape(
        groups, size
    )
    return np.unpackbits(rows, axis=1, bitorder="little")[:, :groups].astype(bool)


def others(related: Bool[Tensor, "graphs nodes nodes"]) -> Bool[Tensor, "graphs nodes nodes"]:
    """The relation without the diagonal."""
    return related & ~torch.eye(related.shape[-1], dtype=torch.bool, device=related.device)


def around(related: Relatives, node: Int[Tensor, " graphs"]) -> Bool[Tensor, "graphs 3 nodes"]:
    """The ancestors of one node in each graph, its descendants, and the nodes with no path to or from it."""
    graph = torch.arange(len(node), device=node.device)
    up, down, itself = related.ancestors[graph, node], related.ancestors[graph, :, node], torch.zeros_like(related.used)
    itself[graph, node] = True
    return torch.stack([up, down, related.used & ~(up | down | itself)], dim=1)


def weights(among: Bool[Tensor, "*sets nodes"], sums: Sums) -> Float[Tensor, "*sets nodes"]:
    """1 for each member of a set, or 1 over their number."""
    ones = among.float()
    return ones if sums == "sum" else ones / ones.sum(-1, keepdim=True).clamp(min=1)
