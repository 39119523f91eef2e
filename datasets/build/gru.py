"""A GRU cell (Cho et al. 2014) as cuDNN and PyTorch have it, and a language model of three layers of it, unrolled cell by cell.

The model is that of Zaremba et al. (2014) with GRUs: one lookup of all tokens, a cell for each layer and time step, a full softmax at
each time step. No dropout, no clipping.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnplace.frontends.torch.scopes import time_step


@dataclass(frozen=True)
class Sizes:
    """Of the model."""

    vocabulary: int = 10_000
    units: int = 1024
    layers: int = 3


FULL = Sizes()


def advance(gates: Tensor, hidden_gates: Tensor, hidden: Tensor) -> Tensor:
    """The next state, from what the input and the state give to reset, update and candidate, in this order."""
    reset, update, candidate = gates.chunk(3, dim=1)
    hidden_reset, hidden_update, hidden_candidate = hidden_gates.chunk(3, dim=1)
    kept = torch.sigmoid(update + hidden_update)
    new = torch.tanh(candidate + torch.sigmoid(reset + hidden_reset) * hidden_candidate)
    return new + kept * (hidden - new)


class Cell(nn.Module):
    """Input `[batch inputs]` and state `[batch units]` to the next state."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.input = nn.Linear(inputs, 3 * units)
        self.hidden = nn.Linear(units, 3 * units)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        return advance(self.input(x), self.hidden(hidden), hidden)


class LanguageModel(nn.Module):
    """Tokens and the tokens that follow them, both `[steps batch]`, to the mean cross entropy of every time step, added up."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.units)
        self.layers = nn.ModuleList(Cell(sizes.units, sizes.units) for _ in range(sizes.layers))
        self.head = nn.Linear(sizes.units, sizes.vocabulary)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        embedded = self.embedding(tokens)
        states = [embedded.new_zeros(embedded.shape[1:]) for _ in self.layers]
        losses = []
        for time, (x, target) in enumerate(zip(embedded.unbind(), targets.unbind(), strict=True)):
            with time_step(time):
                for layer, cell in enumerate(self.layers):
                    x = states[layer] = cell(x, states[layer])
                losses.append(functional.cross_entropy(self.head(x), target))
        return torch.stack(losses).mean()
