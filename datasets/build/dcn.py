"""DCN-V2 (Wang et al. 2021, "DCN V2: Improved Deep & Cross Network", sections 2 and 7): a cross network beside a deep one.

On Criteo: 13 numbers and 26 fields of width 39 are one vector of 1,027 numbers; two cross layers with full matrices and two deep layers of
768, whose outputs are joined. Without the tables 3,493,404 parameters, 3.5 M in the paper. The fields have the ids that occur at least ten
times, as in `deepfm`; the tables are dense, as there.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from datasets.build import deepfm

NUM_DENSE, WIDTH, CROSS_LAYERS, DEEP_WIDTH = 13, 39, 2, 768
ROWS = deepfm.ROWS[NUM_DENSE:]


class Cross(nn.Module):
    """What was crossed so far, crossed once more with the vector itself."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, first: Tensor, crossed: Tensor) -> Tensor:
        return first * self.linear(crossed) + crossed


class DCN(nn.Module):
    """Numbers `[batch 13]` and ids `[batch 26]` to a logit of each click `[batch]`."""

    def __init__(self) -> None:
        super().__init__()
        width = NUM_DENSE + len(ROWS) * WIDTH
        self.tables = nn.ModuleList(nn.Embedding(rows, WIDTH) for rows in ROWS)
        self.cross = nn.ModuleList(Cross(width) for _ in range(CROSS_LAYERS))
        self.deep = nn.Sequential(nn.Linear(width, DEEP_WIDTH), nn.ReLU(), nn.Linear(DEEP_WIDTH, DEEP_WIDTH), nn.ReLU())
        self.out = nn.Linear(width + DEEP_WIDTH, 1)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        rows = [table(column) for table, column in zip(self.tables, ids.unbind(dim=1), strict=True)]
        first = crossed = torch.cat([dense, *rows], dim=1)
        for layer in self.cross:
            crossed = layer(first, crossed)
        return self.out(torch.cat([crossed, self.deep(first)], dim=1)).squeeze(1)
