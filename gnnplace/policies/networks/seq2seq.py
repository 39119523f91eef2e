"""The paper's Placer: devices have names, each with an embedding that the decoder reads next and a row of output weights.

Mirhoseini et al. (ICLR 2018, section 3.2). Its weights are for one number of devices.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gnnplace.policies.networks.glorot import glorot
from gnnplace.policies.networks.placer import Decide, Encoded, Observed, Placer, each

GO = 0  # the row of the trained vector that the decoder reads first; device d is row d + 1


class Seq2Seq(Placer):
    """Groups in, one of `devices` out for each."""

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

    def write(self, encoded: Encoded, samples: int, decide: Decide, observed: Observed | None = None) -> Int[Tensor, "samples groups"]:
        hidden, cell = each(encoded, samples)
        gates = self.gates(self.previous.weight)  # inputs come from a table, as there are only devices + 1 of them
        row, chosen = torch.full((samples,), GO, device=hidden.device), []
        for step in range(encoded.memory.shape[1]):
            hidden, cell = self.advance(gates[row], hidden, cell)
            chosen.append(decide(step, self._logits(encoded, hidden.unsqueeze(1)).squeeze(1)))
            row = chosen[-1] + 1
        return torch.stack(chosen, dim=1)

    def _logits(self, encoded: Encoded, states: Float[Tensor, "samples steps width"]) -> Float[Tensor, "samples steps devices"]:
        return self.squash(self.out(self.with_read(encoded.memory, states)))
