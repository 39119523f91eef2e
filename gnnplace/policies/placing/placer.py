"""What both Placers share: they read the groups one after another, then write one device for each, in the same order.

Mirhoseini et al. (ICLR 2018, section 3.2): a bi-directional LSTM encoder, an LSTM decoder with content-based attention, and
`C tanh(l / T)` on its logits. `seq2seq.py` names devices as the paper does; `observing.py` scores them by what is observed of them.
Without the backward layer and the bound it is the network of ColocRL (Mirhoseini et al., ICML 2017, section 3.2).

What the paper leaves open: "LSTM hidden size 256" is that of each LSTM, so the encoder has one forward and one backward
layer of `width` (not two stacked) and the decoder starts from a learned linear map of their final states; slot i pairs
the forward state that has just read group i with the backward state that has just read it (the authors' code pairs
group i with group G - 1 - i); biases are trained, forget gates start at 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gnnplace.policies.networks.attention import AdditiveAttention

Decide = Callable[[int, Float[Tensor, "samples devices"]], Int[Tensor, " samples"]]  # picks a device at a step for each sample


class Encoded(NamedTuple):
    """What the encoder has read, for each of `leading` groupings."""

    memory: Float[Tensor, "leading groups width"]
    hidden: Float[Tensor, "leading width"]
    cell: Float[Tensor, "leading width"]


@runtime_checkable
class Observed(Protocol):
    """Placements of groups that grow together: what is observed of each device before a decision; `place` is told what it was."""

    def observe(self) -> Float[Tensor, "samples devices observations"]: ...

    def place(self, device: Int[Tensor, " samples"]) -> None: ...

    def replay(self, device: Int[Tensor, "samples groups"]) -> Float[Tensor, "samples groups devices observations"]: ...


class Placer(nn.Module, ABC):
    """Groups in, a device out for each. Probabilities are bounded by `bound` (C) and `temperature` (T); a bound of 0 is none."""

    def __init__(self, group_width: int, *, width: int, bound: float, temperature: float, bidirectional: bool = True) -> None:
        super().__init__()
        self.bound, self.temperature = bound, temperature
        self.encoder = nn.LSTM(group_width, width, batch_first=True, bidirectional=bidirectional)
        read = 2 * width if bidirectional else width
        self.hidden_bridge = nn.Linear(read, width, bias=False)
        self.cell_bridge = nn.Linear(read, width, bias=False)
        self.decoder = nn.LSTM(width, width, batch_first=True)
        self.attention = AdditiveAttention(read, width, width=width)

    @abstractmethod
    def score(
        self, encoded: Encoded, chosen: Int[Tensor, "samples groups"], observed: Observed | None = None
    ) -> Float[Tensor, "samples groups devices"]:
        """The logits of every decision, given the decisions before it: one pass over the whole sequence (teacher forcing)."""

    @abstractmethod
    def write(self, encoded: Encoded, samples: int, decide: Decide, observed: Observed | None = None) -> Int[Tensor, "samples groups"]:
        """Devices, step by step: `decide(step, logits)` picks one for each sample, and the next step reads it."""

    def encode(self, groups: Float[Tensor, "leading groups group_width"]) -> Encoded:
        """Read every grouping's groups."""
        slots, (hidden, cell) = self.encoder(groups)
        both = [state.transpose(0, 1).flatten(1) for state in (hidden, cell)]
        return Encoded(self.attention.memory(slots), self.hidden_bridge(both[0]), self.cell_bridge(both[1]))

    def squash(self, logits: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """`C tanh(l / T)`: no device is ever certain or ruled out. Without a bound l itself."""
        return self.bound * torch.tanh(logits / self.temperature) if self.bound else logits

    def states(self, encoded: Encoded, inputs: Float[Tensor, "samples steps width"]) -> Float[Tensor, "samples steps width"]:
        """The decoder's states over a whole sequence of inputs."""
        hidden, cell = each(encoded, len(inputs))
        return self.decoder(inputs, (hidden.unsqueeze(0), cell.unsqueeze(0)))[0]

    def with_read(
        self, memory: Float[Tensor, "leading groups width"], states: Float[Tensor, "samples steps width"]
    ) -> Float[Tensor, "samples steps both"]:
        """States beside what attention reads; the samples of one grouping query the one memory of that grouping."""
        queries = states.reshape(memory.shape[0], -1, states.shape[-1])
        return torch.cat([states, self.attention(memory, queries).view_as(states)], dim=-1)

    def gates(self, inputs: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows gates"]:
        """What the decoder's inputs add to its four gates."""
        of_input, _, *biases = self.decoder.all_weights[0]
        return nn.functional.linear(inputs, of_input, biases[0] + biases[1])

    def advance(
        self, gates: Float[Tensor, "samples gates"], hidden: Float[Tensor, "samples width"], cell: Float[Tensor, "samples width"]
    ) -> tuple[Float[Tensor, "samples width"], Float[Tensor, "samples width"]]:
        """One step of the decoder: torch's LSTM from the gates of its inputs."""
        of_hidden = self.decoder.all_weights[0][1]
        admit, forget, content, emit = torch.addmm(gates, hidden, of_hidden.t()).chunk(4, dim=-1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(admit) * torch.tanh(content)
        return torch.sigmoid(emit) * torch.tanh(cell), cell


def each(encoded: Encoded, samples: int) -> tuple[Float[Tensor, "samples width"], Float[Tensor, "samples width"]]:
    """The decoder's first state of every sample: sample j continues grouping j // (samples / leading)."""
    repeats = samples // len(encoded.hidden)
    return encoded.hidden.repeat_interleave(repeats, 0), encoded.cell.repeat_interleave(repeats, 0)
