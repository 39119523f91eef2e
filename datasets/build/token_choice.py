"""Mixtures of experts whose tokens choose their experts, as Mixtral and the Switch Transformer have them.

Each token goes to the experts that score highest for it, as long as these have room: an expert takes so many tokens, its capacity (Lepikhin
et al. 2021, "GShard", section 2.2), first choices before second ones and earlier tokens before later ones; what finds no room is passed
over. So every shape is known beforehand, the graph is flat and the experts of a layer are parallel branches.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class ExpertLayer(nn.Module):
    """Tokens `[batch length width]` to what their experts make of them, weighted by the softmax of their scores.

    `choices` experts a token; `factor` times an equal share of all choices is the capacity. `among_chosen` is whether the softmax is over
    the chosen scores alone.
    """

    def __init__(self, width: int, experts: Iterable[nn.Module], *, choices: int, factor: float, among_chosen: bool) -> None:
        super().__init__()
        self.experts = nn.ModuleList(experts)
        self.router = nn.Linear(width, len(self.experts), bias=False)
        self.choices, self.factor, self.among_chosen = choices, factor, among_chosen

    def forward(self, hidden: Tensor) -> Tensor:
        tokens = hidden.flatten(0, 1)
        scores = self.router(tokens)
        weights, chosen = (scores if self.among_chosen else scores.softmax(dim=1)).topk(self.choices, dim=1)
        rows, shares = self._places(weights.softmax(dim=1) if self.among_chosen else weights, chosen)
        outputs = [
            expert(tokens.index_select(0, row)) * share[:, None]
            for expert, row, share in zip(self.experts, rows.unbind(), shares.unbind(), strict=True)
        ]
        return torch.zeros_like(tokens).index_add(0, rows.flatten(), torch.cat(outputs)).view_as(hidden)

    def _places(self, weights: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Of `[tokens choices]`: the token in each place of each expert and its weight, `[experts capacity]`; weight 0 in empty places."""
        count = len(self.experts)
        capacity = int(self.factor * chosen.numel() / count)
        expert = chosen.t().flatten()  # all first choices, then all second ones
        before = (expert[:, None] == torch.arange(count)).long().cumsum(dim=0)  # of each expert, this choice included
        place = before.gather(1, expert[:, None])[:, 0] - 1
        slot = torch.where(place < capacity, expert * capacity + place, count * capacity)  # the last one is for what finds no room
        token = torch.arange(len(chosen)).repeat(self.choices)
        rows = torch.zeros(count * capacity + 1, dtype=torch.int64).index_put((slot,), token)
        shares = weights.new_zeros(count * capacity + 1).index_put((slot,), weights.t().flatten())
        return rows[:-1].view(count, capacity), shares[:-1].view(count, capacity)
