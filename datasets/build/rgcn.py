"""R-GCN (Schlichtkrull et al. 2018, "Modeling Relational Data with Graph Convolutional Networks", sections 2 and 4): links of a knowledge
graph.

A layer has a matrix for each relation and for each direction of it, here of 100 blocks of 5 x 5 on the diagonal, as in the paper's best
model for FB15k-237 (section 5.2): two layers of width 500. What a node's neighbours send over all relations is averaged; a full matrix
keeps the node itself, with dropout 0.2 (the paper drops 0.4 of the other edges, too: their `share` may be 0). DistMult scores a triple
(section 4). 14,541 entities, 237 relations and 272,115 triples; the encoder sees the whole graph at once, as in the paper. How the triples
spread over the relations is not stated there: here each relation has an equal share. Each relation's messages are a branch of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Sizes:
    """Of the model and of its graph."""

    entities: int = 14_541
    relations: int = 237
    triples: int = 272_115
    width: int = 500
    block: int = 5
    layers: int = 2

    @property
    def counts(self) -> tuple[int, ...]:
        """Edges of each relation, and then of its other direction."""
        share, left = divmod(self.triples, self.relations)
        return tuple(share + (relation < left) for relation in range(self.relations)) * 2


FULL = Sizes()
DROPOUT = 0.2


class Convolution(nn.Module):
    """Node features `[nodes width]` to the same, along edges `[edges]` that are sorted by relation.

    `share` `[edges]` is one by the number of edges of the target.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.counts, blocks = sizes.counts, sizes.width // sizes.block
        self.relations = nn.Parameter(torch.zeros(len(self.counts), blocks, sizes.block, sizes.block))
        self.own, self.dropout = nn.Linear(sizes.width, sizes.width), nn.Dropout(DROPOUT)

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor, share: Tensor) -> Tensor:
        parts = zip(nodes.index_select(0, source).split(self.counts), self.relations.unbind(), strict=True)
        messages = torch.cat([_blockwise(rows, blocks) for rows, blocks in parts])
        received = torch.zeros_like(nodes).index_add(0, target, messages * share[:, None])
        return self.dropout(self.own(nodes)) + received


class RGCN(nn.Module):
    """Edges and triples (subject, relation, object, `[triples]` each) to a logit of each triple `[triples]`."""

    def __init__(self, sizes: Sizes = FULL) -> None:
        super().__init__()
        self.entities = nn.Parameter(torch.zeros(sizes.entities, sizes.width))
        self.layers = nn.ModuleList(Convolution(sizes) for _ in range(sizes.layers))
        self.relations = nn.Embedding(sizes.relations, sizes.width)

    def forward(self, source: Tensor, target: Tensor, share: Tensor, subject: Tensor, relation: Tensor, other: Tensor) -> Tensor:
        first, *others = self.layers
        nodes = first(self.entities, source, target, share)
        for layer in others:
            nodes = layer(functional.relu(nodes), source, target, share)
        return (nodes.index_select(0, subject) * self.relations(relation) * nodes.index_select(0, other)).sum(dim=1)


def _blockwise(rows: Tensor, blocks: Tensor) -> Tensor:
    """Rows `[edges width]` times the matrix with these blocks `[blocks block block]` on its diagonal."""
    parts = rows.unflatten(1, blocks.shape[:2]).transpose(0, 1)
    return torch.bmm(parts, blocks).transpose(0, 1).flatten(1)
