"""DeepFM (Guo et al. 2017): a factorisation machine beside a deep network, on the same embeddings.

The fields are the 39 of Criteo, the 13 numeric ones cut into classes, with as many ids as occur at least ten times: 1.09 million. The
tables are dense, as in the public implementations: a step makes a gradient of the size of each table and Adam changes all of it.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

WIDTH, DEEP_WIDTH, DEEP_LAYERS, DROPOUT = 16, 400, 3, 0.5
ROWS = (
    49, 101, 126, 45, 223, 118, 84, 76, 95, 9, 30, 40, 75,
    1458, 555, 193_949, 138_801, 306, 19, 11_970, 634, 4, 42_646, 5178, 192_773, 3175,
    27, 11_422, 181_075, 11, 4654, 2032, 5, 189_657, 18, 16, 59_697, 86, 45_571,
)  # fmt: skip


class DeepFM(nn.Module):
    """Ids `[batch 39]` to a logit of each click `[batch]`."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ModuleList(nn.Embedding(rows, 1) for rows in ROWS)
        self.tables = nn.ModuleList(nn.Embedding(rows, WIDTH) for rows in ROWS)
        self.bias = nn.Parameter(torch.zeros(1))
        widths = (len(ROWS) * WIDTH, *[DEEP_WIDTH] * DEEP_LAYERS)
        self.deep = nn.Sequential(*(Layer(before, after) for before, after in pairwise(widths)))
        self.out = nn.Linear(DEEP_WIDTH, 1)

    def forward(self, ids: Tensor) -> Tensor:
        columns = ids.unbind(dim=1)
        linear = torch.cat([weight(column) for weight, column in zip(self.weights, columns, strict=True)], dim=1)
        embedded = torch.stack([table(column) for table, column in zip(self.tables, columns, strict=True)], dim=1)
        pairs = embedded.sum(dim=1).square() - embedded.square().sum(dim=1)
        deep = self.out(self.deep(embedded.flatten(1))).squeeze(1)
        return self.bias + linear.sum(dim=1) + 0.5 * pairs.sum(dim=1) + deep


class Layer(nn.Sequential):
    """Linear, ReLU, dropout."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(nn.Linear(before, after), nn.ReLU(), nn.Dropout(DROPOUT))
