"""DLRM (Naumov et al. 2019): dense features through a small network, categorical ones through a table each, all pairs multiplied.

The tables have the rows of the Criteo Kaggle data set, uncapped: 33.8 million in all, 8.6 GB at width 64. They are sparse: a step
reads and changes the looked-up rows alone, which is how the authors train it (plain SGD).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

NUM_DENSE = 13
ROWS = (
    1460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5683, 8_351_593, 3194,
    27, 14_992, 5_461_306, 10, 5652, 2173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572,
)  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """Of the model: the rows of its tables, their width, the hidden widths of the network below the interaction and of that above."""

    rows: tuple[int, ...] = ROWS
    width: int = 64
    bottom: tuple[int, ...] = (512, 256)
    top: tuple[int, ...] = (512, 256)


FULL = Sizes()


class Interaction(nn.Module):
    """The product of every two of the vectors, behind the first of them: `[batch vectors width]` to `[batch width + pairs]`."""

    def __init__(self, vectors: int) -> None:
        super().__init__()
        row, column = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs", row * vectors + column, persistent=False)

    def forward(self, vectors: Tensor) -> Tensor:
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        return torch.cat([vectors[:, 0], products.index_select(1, self.pairs)], dim=1)


class DLRM(nn.Module):
    """Dense features `[batch 13]` and ids `[batch tables]` to a logit of each click `[batch]`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        vectors = 1 + len(sizes.rows)
        self.bottom = nn.Sequential(*_layers((NUM_DENSE, *sizes.bottom, sizes.width)), nn.ReLU())
        self.tables = nn.ModuleList(nn.Embedding(rows, sizes.width, sparse=True) for rows in sizes.rows)
        self.interaction = Interaction(vectors)
        self.top = nn.Sequential(*_layers((sizes.width + vectors * (vectors - 1) // 2, *sizes.top, 1)))

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        rows = [table(column) for table, column in zip(self.tables, ids.unbind(dim=1), strict=True)]
        return self.top(self.interaction(torch.stack([self.bottom(dense), *rows], dim=1))).squeeze(1)


def _layers(widths: tuple[int, ...]) -> list[nn.Module]:
    """Linear layers with ReLU between them."""
    linear = [nn.Linear(before, after) for before, after in pairwise(widths)]
    return [part for layer in linear for part in (nn.ReLU(), layer)][1:]
