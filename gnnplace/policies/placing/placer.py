"""The Placer: a sequence-to-sequence network with attention that reads all groups, then writes a device for each.

Mirhoseini et al. (ICLR 2018, section 3.2): a bi-directional LSTM encoder, an LSTM decoder with content-based attention,
and `C tanh(l / T)` on its logits. `Seq2Seq` is the paper's; `ObservingPlacer` takes any number of devices. Without the
backward layer and the bound it is the network of ColocRL (Mirhoseini et al., ICML 2017, section 3.2).

What the paper leaves open, decided here. "LSTM hidden size 256" is the size of each LSTM: the encoder has one forward
and one backward layer of `width` (not two stacked), and the decoder starts from a learned linear map of their final
states. Slot i pairs the forward and the backward state that have just read group i (the authors' code pairs group i
with group G - 1 - i). Biases are trained, and forget gates start at 1.

`AdditiveAttention` (Vinyals et al. 2015) is the attention of the decoder, in memory that does not grow with the width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gnnplace.policies.glorot import glorot


class DeviceScorer(nn.Module):
    """The logit of a device: a two-layer network shared by all devices, plus a linear term in the observations."""

    def __init__(self, width: int, observations: int, hidden: int = 32) -> None:
        super().__init__()
        self.of_unit = nn.Linear(width, hidden)
        self.of_device = nn.Linear(observations, hidden, bias=False)
        self.mix = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 1, bias=False)
        self.direct = nn.Linear(observations, 1, bias=False)

    @torch.no_grad()
    def expect(self, observation: int, logit: float) -> None:
        """Sets what an observation of 1 adds to the logit at first; training may unlearn it."""
        self.direct.weight[0, observation] = logit

    def unit_term(self, embedding: Float[Tensor, "*units width"]) -> Float[Tensor, "*units hidden"]:
        """The term of the unit alone, computed once for an episode."""
        return self.of_unit(embedding)

    def forward(
        self, unit_term: Float[Tensor, "*#shape hidden"], observed: Float[Tensor, "*shape devices observations"]
    ) -> Float[Tensor, "*shape devices"]:
        first = torch.relu(unit_term.unsqueeze(-2) + self.of_device(observed))
        second = torch.relu(self.mix(first))
        return (self.out(second) + self.direct(observed)).squeeze(-1)


# picks a device at a step for each sample
Decide = Callable[[int, Float[Tensor, "samples devices"]], Int[Tensor, " samples"]]


class Encoded(NamedTuple):
    """The encoder's states for each of `leading` groupings."""

    memory: Float[Tensor, "leading groups width"]
    hidden: Float[Tensor, "leading width"]
    cell: Float[Tensor, "leading width"]


@runtime_checkable
class Observed(Protocol):
    """Placements of groups that grow together, with the observations of each device before a decision."""

    def observe(self) -> Float[Tensor, "samples devices observations"]: ...

    def place(self, device: Int[Tensor, " samples"]) -> None: ...

    def replay(self, device: Int[Tensor, "samples groups"]) -> Float[Tensor, "samples groups devices observations"]: ...


class Placer(nn.Module, ABC):
    """A network that reads groups and writes a device for each.

    Probabilities are bounded by `bound` (C) and `temperature` (T); a bound of 0 is none.
    """

    def __init__(
        self, group_width: int, *, width: int, bound: float, temperature: float, bidirectional: bool = True
    ) -> None:
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
        """The logits of every decision, given the decisions before it, in one pass (teacher forcing)."""

    @abstractmethod
    def write(
        self, encoded: Encoded, samples: int, decide: Decide, observed: Observed | None = None
    ) -> Int[Tensor, "samples groups"]:
        """Devices, step by step: `decide(step, logits)` picks one for each sample, and the next step reads it."""

    def encode(self, groups: Float[Tensor, "leading groups group_width"]) -> Encoded:
        """Reads every grouping's groups."""
        slots, (hidden, cell) = self.encoder(groups)
        both = [state.transpose(0, 1).flatten(1) for state in (hidden, cell)]
        return Encoded(self.attention.memory(slots), self.hidden_bridge(both[0]), self.cell_bridge(both[1]))

    def squash(self, logits: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """`C tanh(l / T)`: no device is ever certain or ruled out. Without a bound l itself."""
        return self.bound * torch.tanh(logits / self.temperature) if self.bound else logits

    def states(
        self, encoded: Encoded, inputs: Float[Tensor, "samples steps width"]
    ) -> Float[Tensor, "samples steps width"]:
        """The decoder's states over a whole sequence of inputs."""
        hidden, cell = each(encoded, len(inputs))
        return self.decoder(inputs, (hidden.unsqueeze(0), cell.unsqueeze(0)))[0]

    def with_read(
        self, memory: Float[Tensor, "leading groups width"], states: Float[Tensor, "samples steps width"]
    ) -> Float[Tensor, "samples steps both"]:
        """The states beside what their attention reads; the samples of one grouping share its memory."""
        queries = states.reshape(memory.shape[0], -1, states.shape[-1])
        return torch.cat([states, self.attention(memory, queries).view_as(states)], dim=-1)

    def gates(self, inputs: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows gates"]:
        """The contribution of the decoder's inputs to its four gates."""
        of_input, _, *biases = self.decoder.all_weights[0]
        return nn.functional.linear(inputs, of_input, biases[0] + biases[1])

    def advance(
        self,
        gates: Float[Tensor, "samples gates"],
        hidden: Float[Tensor, "samples width"],
        cell: Float[Tensor, "samples width"],
    ) -> tuple[Float[Tensor, "samples width"], Float[Tensor, "samples width"]]:
        """One step of the decoder: torch's LSTM from the gates of its inputs."""
        of_hidden = self.decoder.all_weights[0][1]
        admit, forget, content, emit = torch.addmm(gates, hidden, of_hidden.t()).chunk(4, dim=-1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(admit) * torch.tanh(content)
        return torch.sigmoid(emit) * torch.tanh(cell), cell


def each(encoded: Encoded, samples: int) -> tuple[Float[Tensor, "samples width"], Float[Tensor, "samples width"]]:
    """The decoder's first state of every sample; sample j continues grouping `j // (samples / leading)`."""
    repeats = samples // len(encoded.hidden)
    return encoded.hidden.repeat_interleave(repeats, 0), encoded.cell.repeat_interleave(repeats, 0)


GO = 0  # the row of the trained vector that the decoder reads first; device d is row d + 1


class Seq2Seq(Placer):
    """The paper's Placer: devices are numbers, each with an embedding for the decoder and a row of output weights.

    Its weights are for one number of devices.
    """

    def __init__(
        self,
        group_width: int,
        devices: int,
        *,
        width: int = 256,
        bound: float = 5.0,
        temperature: float = 10.0,
        bidirectional: bool = True,
    ) -> None:
        super().__init__(group_width, width=width, bound=bound, temperature=temperature, bidirectional=bidirectional)
        self.devices = devices
        self.previous = nn.Embedding(devices + 1, width)
        self.out = nn.Linear(2 * width, devices, bias=False)
        glorot(self)
        nn.init.xavier_uniform_(self.previous.weight)

    def score(
        self, encoded: Encoded, chosen: Int[Tensor, "samples groups"], observed: Observed | None = None
    ) -> Float[Tensor, "samples groups devices"]:
        inputs = self.previous(nn.functional.pad(chosen[:, :-1] + 1, (1, 0), value=GO))
        return self._logits(encoded, self.states(encoded, inputs))

    def write(
        self, encoded: Encoded, samples: int, decide: Decide, observed: Observed | None = None
    ) -> Int[Tensor, "samples groups"]:
        hidden, cell = each(encoded, samples)
        gates = self.gates(self.previous.weight)  # inputs come from a table, as there are only devices + 1 of them
        row, chosen = torch.full((samples,), GO, device=hidden.device), []
        for step in range(encoded.memory.shape[1]):
            hidden, cell = self.advance(gates[row], hidden, cell)
            chosen.append(decide(step, self._logits(encoded, hidden.unsqueeze(1)).squeeze(1)))
            row = chosen[-1] + 1
        return torch.stack(chosen, dim=1)

    def _logits(
        self, encoded: Encoded, states: Float[Tensor, "samples steps width"]
    ) -> Float[Tensor, "samples steps devices"]:
        return self.squash(self.out(self.with_read(encoded.memory, states)))


class ObservingPlacer(Placer):
    """A Placer for any number of devices: it scores each device by its present state, not by its number.

    Where the paper's decoder reads the embedding of the chosen device next, this one reads the observed state of that
    device, and a trained vector first. Two devices of one kind differ by their state alone.
    """

    def __init__(
        self, group_width: int, observations: int, *, width: int = 256, bound: float = 5.0, temperature: float = 10.0
    ) -> None:
        super().__init__(group_width, width=width, bound=bound, temperature=temperature)
        self.go = nn.Parameter(torch.zeros(1, 1, width))
        self.previous = nn.Linear(observations, width)
        glorot(self)
        nn.init.xavier_uniform_(self.go)
        self.scorer = DeviceScorer(2 * width, observations)

    def score(
        self, encoded: Encoded, chosen: Int[Tensor, "samples groups"], observed: Observed | None = None
    ) -> Float[Tensor, "samples groups devices"]:
        assert observed is not None
        seen = observed.replay(chosen)
        read = self.previous(_of_chosen(seen, chosen)[:, :-1])
        inputs = torch.cat([self.go.expand(len(chosen), -1, -1), read], dim=1)
        return self._logits(encoded, self.states(encoded, inputs), seen)

    def write(
        self, encoded: Encoded, samples: int, decide: Decide, observed: Observed | None = None
    ) -> Int[Tensor, "samples groups"]:
        assert observed is not None
        hidden, cell = each(encoded, samples)
        inputs, chosen = self.go[0].expand(samples, -1), []
        for step in range(encoded.memory.shape[1]):
            hidden, cell = self.advance(self.gates(inputs), hidden, cell)
            seen = observed.observe()
            chosen.append(decide(step, self._logits(encoded, hidden.unsqueeze(1), seen.unsqueeze(1)).squeeze(1)))
            observed.place(chosen[-1])
            inputs = self.previous(_of_chosen(seen, chosen[-1]))
        return torch.stack(chosen, dim=1)

    def _logits(
        self,
        encoded: Encoded,
        states: Float[Tensor, "samples steps width"],
        seen: Float[Tensor, "samples steps devices observations"],
    ) -> Float[Tensor, "samples steps devices"]:
        return self.squash(self.scorer(self.scorer.unit_term(self.with_read(encoded.memory, states)), seen))


def _of_chosen(
    seen: Float[Tensor, "*shape devices observations"], chosen: Int[Tensor, "*shape"]
) -> Float[Tensor, "*shape observations"]:
    """The observations of the chosen devices."""
    index = chosen[..., None, None].expand(*chosen.shape, 1, seen.shape[-1])
    return seen.gather(-2, index).squeeze(-2)


CHUNK = 1 << 17  # numbers at a time: 512 KiB, which stays in a core's cache


class AdditiveAttention(nn.Module):
    """Additive attention (Vinyals et al. 2015): `score_j = v . tanh(memory_j + query)`.

    It returns a mean of the *transformed* slots, as the authors' code does.
    """

    def __init__(self, slot_width: int, query_width: int, *, width: int) -> None:
        super().__init__()
        self.slots = nn.Linear(slot_width, width, bias=False)
        self.query = nn.Linear(query_width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)
        glorot(self)

    def memory(self, slots: Float[Tensor, "leading slots slot_width"]) -> Float[Tensor, "leading slots width"]:
        """The transformed slots, to be attended to many times."""
        return self.slots(slots)

    def forward(
        self, memory: Float[Tensor, "leading slots width"], states: Float[Tensor, "leading queries query_width"]
    ) -> Float[Tensor, "leading queries width"]:
        """The mean that each query reads; the softmax is over slots."""
        scores = AdditiveScores.apply(memory, self.query(states), self.score.weight[0])
        return torch.softmax(scores, dim=-1) @ memory


class AdditiveScores(torch.autograd.Function):
    """`scores[l, q, s] = v . tanh(memory[l, s] + query[l, q])`, in memory that does not grow with the width.

    The sums of a sequence are samples x queries x slots x width numbers, 1 GB for 16 samples of 256 groups, and are
    never held: the forward pass goes query by query through the cache, and the backward pass computes the tanh again.
    """

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        memory: Float[Tensor, "leading slots width"],
        query: Float[Tensor, "leading queries width"],
        v: Float[Tensor, " width"],
    ) -> Float[Tensor, "leading queries slots"]:
        ctx.save_for_backward(memory, query, v)
        scores = memory.new_empty(memory.shape[0], query.shape[1], memory.shape[1])
        for row, part in _chunks(memory, query):
            scores[row, part] = (memory[row] + query[row, part, None]).tanh_() @ v
        return scores

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of memory, query and v.

        With x the tanh and g the gradient of the scores: `dv = sum g x`, the others `v sum g (1 - x^2)` over queries or
        over slots.
        """
        memory, query, v = ctx.saved_tensors
        grad = grads[0].contiguous()
        # the last two of g x^2
        dv, over_queries, over_slots = torch.zeros_like(v), torch.zeros_like(memory), torch.empty_like(query)
        for row, part in _chunks(memory, query):
            x = (memory[row] + query[row, part, None]).tanh_()
            g = grad[row, part]
            dv += g.flatten() @ x.flatten(0, 1)
            squares = x.square_()
            over_slots[row, part] = torch.bmm(g.unsqueeze(1), squares).squeeze(1)
            for weight, square in zip(g, squares, strict=True):
                over_queries[row].addcmul_(weight.unsqueeze(-1), square)
        return v * (grad.sum(1).unsqueeze(-1) - over_queries), v * (grad.sum(2).unsqueeze(-1) - over_slots), dv


def _chunks(memory: Tensor, query: Tensor) -> list[tuple[int, slice]]:
    """The rows of the leading axis, each with slices of its queries that fit a chunk."""
    size = max(1, CHUNK // max(1, memory[0].numel()))
    return [
        (row, slice(start, start + size)) for row in range(memory.shape[0]) for start in range(0, query.shape[1], size)
    ]
