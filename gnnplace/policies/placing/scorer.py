"""Scores a unit on each device from the unit's embedding and what is observed of that device: any number of devices."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


class DeviceScorer(nn.Module):
    """The logit of a device: a two-layer network shared by all devices, plus a linear term in the observations."""

    def __init__(self, width: int, observations: int, hidden: int = 32) -> None:
        super().__init__()
        self.of_unit = nn.Linear(width, hidden)
        self.of_device = nn.Linear(observations, hidden, bias=False)
        self.mix = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 1, bias=False)
        self.direct = nn.Linear(observations, 1, bias=False)

    def unit_term(self, embedding: Float[Tensor, "*units width"]) -> Float[Tensor, "*units hidden"]:
        """What depends on the unit alone: computed once for an episode."""
        return self.of_unit(embedding)

    def forward(
        self, unit_term: Float[Tensor, "*#shape hidden"], observed: Float[Tensor, "*shape devices observations"]
    ) -> Float[Tensor, "*shape devices"]:
        first = torch.relu(unit_term.unsqueeze(-2) + self.of_device(observed))
        second = torch.relu(self.mix(first))
        return (self.out(second) + self.direct(observed)).squeeze(-1)
