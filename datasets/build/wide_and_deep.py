"""Wide & Deep (Cheng et al. 2016, section 4.2 and figure 4): a linear model over crossed fields beside a deep network over embeddings.

As in the paper each field has an embedding of width 32, joined to a vector of about 1,200 numbers, and the deep part has layers of 1024,
512 and 256; the wide part has a weight for each pair of ids of two fields. The paper's fields (apps and their users) have no published
sizes: Criteo's 39 of `deepfm` stand in for them, and every two of the six with most ids are crossed, each pair hashed to a million
weights. All tables are dense, and Adam trains all of it, where the paper has follow-the-regularised-leader for the wide part and AdaGrad
for the deep one.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from datasets.build import deepfm

ROWS = deepfm.ROWS
WIDTH, DEEP_WIDTHS, CROSSES, CROSS_ROWS = 32, (1024, 512, 256), 15, 1_000_000


class Wide(nn.Module):
    """Ids of crossed pairs `[batch crosses]` to the sum of their weights `[batch]`."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ModuleList(nn.Embedding(CROSS_ROWS, 1) for _ in range(CROSSES))

    def forward(self, crossed: Tensor) -> Tensor:
        weights = [weight(column) for weight, column in zip(self.weights, crossed.unbind(dim=1), strict=True)]
        return torch.cat(weights, dim=1).sum(dim=1)


class Deep(nn.Module):
    """Ids of fields `[batch fields]` to a logit `[batch]`."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, WIDTH) for rows in ROWS)
        widths = (len(ROWS) * WIDTH, *DEEP_WIDTHS)
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(before, after), nn.ReLU()) for before, after in pairwise(widths)))
        self.out = nn.Linear(DEEP_WIDTHS[-1], 1)

    def forward(self, ids: Tensor) -> Tensor:
        rows = [table(column) for table, column in zip(self.tables, ids.unbind(dim=1), strict=True)]
        return self.out(self.layers(torch.cat(rows, dim=1))).squeeze(1)


class WideAndDeep(nn.Module):
    """Ids of fields and of crossed pairs to a logit of each click `[batch]`."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.deep = Wide(), Deep()
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, ids: Tensor, crossed: Tensor) -> Tensor:
        return self.wide(crossed) + self.deep(ids) + self.bias
