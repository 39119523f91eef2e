"""The network of the improver: it scores moves of a placement by their features."""

from __future__ import annotations

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnnplace.moves.columns import DRAWN, NAMES
from gnnplace.moves.ranking import STEEPNESS, Ranking

FEATURES = len(NAMES) + len(DRAWN)
OUTSIDE = 0.005  # the share of training moves beyond the range of a feature, on each side
LEAST_SPREAD = 1e-3


class MoveScorer(nn.Module):
    """A multi-layer perceptron: `Float[moves features]` to a score each, in logits.

    Features are squashed (`moves.ranking`), clamped to the range in which almost all of training lay, and standardised;
    the same scale holds on every graph and machine. `gnnplace.moves.ranking.Ranking` computes the same without torch.
    """

    low: Tensor
    high: Tensor
    mean: Tensor
    spread: Tensor

    def __init__(self, width: int = 128, hidden: int = 2) -> None:
        super().__init__()
        sizes = [FEATURES, *[width] * hidden, 1]
        self.layers = nn.ModuleList(nn.Linear(inputs, outputs) for inputs, outputs in pairwise(sizes))
        for name, value in (("low", -torch.inf), ("high", torch.inf), ("mean", 0.0), ("spread", 1.0)):
            self.register_buffer(name, torch.full((FEATURES,), value))

    def forward(self, rows: Float[Tensor, "*moves features"]) -> Float[Tensor, " *moves"]:
        hidden = (squashed(rows).clamp(self.low, self.high) - self.mean) / self.spread
        for layer in self.layers[:-1]:
            hidden = torch.relu(layer(hidden))
        return self.layers[-1](hidden).squeeze(-1)

    def ranking(self) -> Ranking:
        """The same network as searches use it."""
        return Ranking.of({name: value.detach().cpu().numpy() for name, value in self.state_dict().items()})

    @property
    def knows_range(self) -> bool:
        """Whether the scorer has seen moves, or has the range of a checkpoint."""
        return bool(self.low.isfinite().all())

    def fit_range(self, rows: Float[Tensor, "moves features"]) -> None:
        """Clamps and standardises features by these moves from now on."""
        seen = squashed(rows.to(self.low))
        low, high = (seen.kthvalue(place, dim=0).values for place in _places(len(seen)))
        clamped = seen.clamp(low, high)
        self.low, self.high, self.mean = low, high, clamped.mean(0)
        self.spread = clamped.std(0).nan_to_num().clamp(min=LEAST_SPREAD)


def squashed(rows: Float[Tensor, "*moves features"]) -> Float[Tensor, "*moves features"]:
    """As `gnnplace.moves.ranking.squashed`."""
    return rows.sign() * (STEEPNESS * rows.abs()).log1p()


def _places(moves: int) -> tuple[int, int]:
    """The places, from 1, of the range's ends among sorted moves."""
    beyond = int(OUTSIDE * moves)
    return 1 + beyond, moves - beyond
