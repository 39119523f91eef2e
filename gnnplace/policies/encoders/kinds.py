"""Kinds of op as columns: of one framework, as in the paper, or canonical, which all frameworks share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor, nn

from gnnplace.graph import CANONICAL_KINDS, NONE, ComputationGraph

KINDS = 200


@dataclass(frozen=True)
class Vocabulary:
    """Kinds of op with a column each.

    Either given kinds of a framework, and one column for all others; or the canonical kinds.
    """

    words: tuple[str, ...]
    canonical: bool = False

    @property
    def size(self) -> int:
        return len(self.words) + (not self.canonical)

    def rows(self, graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
        """Each op's column; the last column is for every kind that the vocabulary lacks."""
        column = graph.canonical_kind if self.canonical else graph.kind
        rows = {kind: row for row, kind in enumerate(self.words)}
        table = np.array([rows.get(kind, self.size - 1) for kind in column.values] + [self.size - 1], dtype=np.int64)
        assert NONE == -1  # an op without a canonical kind counts as the last, "other"
        return table[column.index]


CANONICAL = Vocabulary(CANONICAL_KINDS, canonical=True)


def vocabulary(graphs: Iterable[ComputationGraph], size: int = KINDS) -> Vocabulary:
    """The most frequent kinds of op, ties in alphabetical order."""
    counts: Counter[str] = Counter()
    for graph in graphs:
        counts.update(
            dict(
                zip(
                    graph.kind.values,
                    np.bincount(graph.kind.index, minlength=len(graph.kind.values)).tolist(),
                    strict=True,
                )
            )
        )
    return Vocabulary(tuple(sorted(counts, key=lambda kind: (-counts[kind], kind))[:size]))


class SeenColumns(nn.Module):
    """Zeroes the columns that were 0 in all of training, because their weights are untrained.

    Before any training it changes nothing.
    """

    seen: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(columns, dtype=torch.bool))

    def widen(self, rows: Shaped[Tensor, "rows columns"]) -> None:
        self.seen = self.seen | (rows != 0).any(0)

    def forward(self, values: Float[Tensor, "*rows columns"]) -> Float[Tensor, "*rows columns"]:
        return values * (self.seen | ~self.seen.any())
