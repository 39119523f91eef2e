"""A Placer for any number of devices: it scores each by what is observed of it while groups are placed, not by its name.

The decoder, its attention and `C tanh(l / T)` are those of Mirhoseini et al. (ICLR 2018). In place of a device's embedding the decoder
reads next what was observed of the device it chose. Equal devices are told apart by their state alone.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gnnplace.policies.networks.glorot import glorot
from gnnplace.policies.networks.placer import Decide, Encoded, Observed, Placer, each
from gnnplace.policies.networks.scorer import DeviceScorer


class ObservingPlacer(Placer):
    """Groups in, one of the observed devices out for each. The decoder reads a trained vector first."""

    def __init__(self, group_width: int, observations: int, *, width: int = 256, bound: float = 5.0, temperature: float = 10.0) -> None:
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

    def write(self, encoded: Encoded, samples: int, decide: Decide, observed: Observed | None = None) -> Int[Tensor, "samples groups"]:
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
        self, encoded: Encoded, states: Float[Tensor, "samples steps width"], seen: Float[Tensor, "samples steps devices observations"]
    ) -> Float[Tensor, "samples steps devices"]:
        return self.squash(self.scorer(self.scorer.unit_term(self.with_read(encoded.memory, states)), seen))


def _of_chosen(seen: Float[Tensor, "*shape devices observations"], chosen: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape observations"]:
    """What was observed of the devices that were chosen."""
    index = chosen[..., None, None].expand(*chosen.shape, 1, seen.shape[-1])
    return seen.gather(-2, index).squeeze(-2)
