"""The Placer: reads the groups one after another, then writes one device for each, in the same order.

Mirhoseini et al. (ICLR 2018, section 3.2): a bi-directional LSTM encoder, an LSTM decoder with
content-based attention that is fed the embedding of the device it chose last, and `C tanh(l / T)` on its logits.

What the paper leaves open: "LSTM hidden size 256" is that of each LSTM, so the encoder has one forward and one backward
layer of `width` (not two stacked) and the decoder starts from a learned linear map of their final states; slot i pairs
the forward state that has just read group i with the backward state that has just read it (the authors' code pairs
group i with group G - 1 - i); biases are trained, forget gates start at 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gnnplace.policies.networks.attention import AdditiveAttention
from gnnplace.policies.networks.glorot import glorot

GO = 0  # the row of the trained vector that the decoder reads first; device d is row d + 1


class Encoded(NamedTuple):
    """What the encoder has read, for each of `leading` groupings."""

    memory: Float[Tensor, "leading groups width"]
    hidden: Float[Tensor, "leading width"]
    cell: Float[Tensor, "leading width"]


class Seq2Seq(nn.Module):
    """Groups in, one of `devices` out for each. Probabilities are bounded by `bound` (C) and `temperature` (T)."""

    def __init__(self, group_width: int, devices: int, *, width: int = 256, bound: float = 5.0, temperature: float = 10.0) -> None:
        super().__init__()
        self.devices, self.bound, self.temperature = devices, bound, temperature
        self.encoder = nn.LSTM(group_width, width, batch_first=True, bidirectional=True)
        self.hidden_bridge = nn.Linear(2 * width, width, bias=False)
        self.cell_bridge = nn.Linear(2 * width, width, bias=False)
        self.previous = nn.Embedding(devices + 1, width)
        self.decoder = nn.LSTM(width, width, batch_first=True)
        self.attention = AdditiveAttention(2 * width, width, width=width)
        self.out = nn.Linear(2 * width, devices, bias=False)
        glorot(self)
        nn.init.xavier_uniform_(self.previous.weight)

    def encode(self, groups: Float[Tensor, "leading groups group_width"]) -> Encoded:
        """Read every grouping's groups."""
        slots, (hidden, cell) = self.encoder(groups)
        both = [state.transpose(0, 1).flatten(1) for state in (hidden, cell)]
        return Encoded(self.attention.memory(slots), self.hidden_bridge(both[0]), self.cell_bridge(both[1]))

    def score(self, encoded: Encoded, chosen: Int[Tensor, "samples groups"]) -> Float[Tensor, "samples groups devices"]:
        """The logits of every decision, given the decisions before it: one pass over the whole sequence (teacher forcing)."""
        inputs = self.previous(nn.functional.pad(chosen[:, :-1] + 1, (1, 0), value=GO))
        hidden, cell = _each(encoded, len(chosen))
        states, _ = self.decoder(inputs, (hidden.unsqueeze(0), cell.unsqueeze(0)))
        return self._logits(encoded.memory, states)

    def write(
        self, encoded: Encoded, samples: int, decide: Callable[[int, Float[Tensor, "samples devices"]], Int[Tensor, " samples"]]
    ) -> Int[Tensor, "samples groups"]:
        """Devices, step by step: `decide(step, logits)` picks one for each sample, and the next step reads it."""
        hidden, cell = _each(encoded, samples)
        of_input, of_hidden, *biases = self.decoder.all_weights[0]
        inputs = nn.functional.linear(self.previous.weight, of_input, biases[0] + biases[1])
        row, chosen = torch.full((samples,), GO, device=hidden.device), []
        for step in range(encoded.memory.shape[1]):
            hidden, cell = _lstm_cell(torch.addmm(inputs[row], hidden, of_hidden.t()), cell)
            chosen.append(decide(step, self._logits(encoded.memory, hidden.unsqueeze(1)).squeeze(1)))
            row = chosen[-1] + 1
        return torch.stack(chosen, dim=1)

    def _logits(
        self, memory: Float[Tensor, "leading groups width"], states: Float[Tensor, "samples steps width"]
    ) -> Float[Tensor, "samples steps devices"]:
        """The samples of one grouping query the one memory of that grouping."""
        queries = states.reshape(memory.shape[0], -1, states.shape[-1])
        read = self.attention(memory, queries).view_as(states)
        return self.squash(self.out(torch.cat([states, read], dim=-1)))

    def squash(self, logits: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """`C tanh(l / T)`: no device is ever certain or ruled out."""
        return self.bound * torch.tanh(logits / self.temperature)


def _each(encoded: Encoded, samples: int) -> tuple[Float[Tensor, "samples width"], Float[Tensor, "samples width"]]:
    """The decoder's first state of every sample: sample j continues grouping j // (samples / leading)."""
    repeats = samples // len(encoded.hidden)
    return encoded.hidden.repeat_interleave(repeats, 0), encoded.cell.repeat_interleave(repeats, 0)


def _lstm_cell(
    gates: Float[Tensor, "samples gates"], cell: Float[Tensor, "samples width"]
) -> tuple[Float[Tensor, "samples width"], Float[Tensor, "samples width"]]:
    """One step of torch's LSTM from its four gates' sums; inputs come from a table, as there are only devices + 1 of them."""
    admit, forget, content, emit = gates.chunk(4, dim=-1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(admit) * torch.tanh(content)
    return torch.sigmoid(emit) * torch.tanh(cell), cell
