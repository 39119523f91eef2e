"""Variations of GNMT (Wu et al. 2016), a translation network of LSTM layers with attention, unrolled over short sentences.

A variation has two to four encoder layers and as many decoder layers. The first encoder layer may run both ways, each with half of the
units, as in GNMT. The attention (additive, normalised over the source; Bahdanau et al. 2015) is asked by the first decoder layer and
its context goes to every layer, as in GNMT, or is asked by the last one and goes to the softmax alone (Luong et al. 2015). Layers may have
residual connections from the third one on. Softmax at each step, no dropout.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnplace.frontends.torch.scopes import time_step

AttentionLayer = Literal["first", "last"]
VOCABULARY = 32_000


class Variation(NamedTuple):
    """What is drawn. `steps` are those of a source sentence and of its translation."""

    layers: int
    units: int
    steps: int
    batch: int
    attention: AttentionLayer
    both_ways: bool
    residual: bool


def sampled(generator: np.random.Generator) -> Variation:
    """A variation, each choice as likely as any other: sentences of 6 to 12 words, batches of 32 to 128 in steps of 8."""
    return Variation(
        layers=int(generator.integers(2, 5)), units=int(generator.choice((256, 512, 1024))), steps=int(generator.integers(6, 13)),
        batch=8 * int(generator.integers(4, 17)), attention=get_args(AttentionLayer)[generator.integers(2)],
        both_ways=bool(generator.integers(2)), residual=bool(generator.integers(2)),
    )  # fmt: skip


class LSTM(nn.Module):
    """An LSTM cell (Hochreiter and Schmidhuber 1997, with a forget gate): inputs `[batch inputs]` and (output, state) to the next two."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.product = nn.Linear(inputs + units, 4 * units)

    def forward(self, x: Tensor, before: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        entered, forgotten, candidate, shown = self.product(torch.cat([x, before[0]], dim=1)).chunk(4, dim=1)
        state = torch.sigmoid(forgotten) * before[1] + torch.sigmoid(entered) * torch.tanh(candidate)
        return torch.sigmoid(shown) * torch.tanh(state), state


class Attention(nn.Module):
    """A query `[batch units]` over `[steps batch units]` to their weighted mean."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(units, units, bias=False), nn.Linear(units, units, bias=False)
        self.score = nn.Linear(units, 1, bias=False)

    def forward(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        weights = functional.softmax(self.score(torch.tanh(self.query(query) + keys)), dim=0)
        return (weights * values).sum(dim=0)


class Translator(nn.Module):
    """Source, decoder input and target tokens, all `[steps batch]`, to the mean cross entropy."""

    def __init__(self, variation: Variation, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.variation, units = variation, variation.units
        first = units // 2 if variation.both_ways else units
        self.source, self.target = nn.Embedding(vocabulary, units), nn.Embedding(vocabulary, units)
        self.encoder = nn.ModuleList(LSTM(units, units if layer else first) for layer in range(variation.layers))
        self.backwards = nn.ModuleList([LSTM(units, first)] if variation.both_ways else [])
        context = units if variation.attention == "first" else 0
        self.decoder = nn.ModuleList(LSTM(units + context, units) for _ in range(variation.layers))
        self.attention = Attention(units)
        self.head = nn.Linear(units if context else 2 * units, vocabulary)

    def forward(self, source: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        values = torch.stack(self._encoded(list(self.source(source).unbind())))
        keys = self.attention.key(values)
        states = [_zeros(values[0], self.variation.units) for _ in self.decoder]
        context, losses = torch.zeros_like(values[0]), []
        for step, (x, target) in enumerate(zip(self.target(inputs).unbind(), targets.unbind(), strict=True)):
            with time_step(step):
                x, context = self._decoded(x, context, states, keys, values)
                losses.append(functional.cross_entropy(self.head(x), target))
        return torch.stack(losses).mean()

    def _encoded(self, sequence: list[Tensor]) -> list[Tensor]:
        for layer, cell in enumerate(self.encoder):
            outputs = _unrolled(cell, sequence)
            if layer == 0 and self.variation.both_ways:
                back = _unrolled(self.backwards[0], sequence, reverse=True)
                outputs = [torch.cat(pair, dim=1) for pair in zip(outputs, back, strict=True)]
            if self._adds(layer):
                outputs = [x + output for x, output in zip(sequence, outputs, strict=True)]
            sequence = outputs
        return sequence

    def _decoded(
        self, x: Tensor, context: Tensor, states: list[tuple[Tensor, Tensor]], keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What the softmax takes, and the context for the next step; changes the states."""
        early = self.variation.attention == "first"
        for layer, cell in enumerate(self.decoder):
            output, state = states[layer] = cell(torch.cat([x, context], dim=1) if early else x, states[layer])
            if early and layer == 0:
                context = self.attention(output, keys, values)
            x = x + output if self._adds(layer) else output
        return (x, context) if early else (torch.cat([x, self.attention(x, keys, values)], dim=1), context)

    def _adds(self, layer: int) -> bool:
        return self.variation.residual and layer >= 2


def _unrolled(cell: nn.Module, sequence: list[Tensor], reverse: bool = False) -> list[Tensor]:
    """The outputs of a cell for each step, in the order of the steps."""
    units = cell.product.out_features // 4
    state, outputs = _zeros(sequence[0], units), {}
    for step in sorted(range(len(sequence)), reverse=reverse):
        with time_step(step):
            state = cell(sequence[step], state)
            outputs[step] = state[0]
    return [outputs[step] for step in range(len(sequence))]


def _zeros(like: Tensor, units: int) -> tuple[Tensor, Tensor]:
    """The output and the state before the first step."""
    zeros = like.new_zeros(len(like), units)
    return zeros, zeros
