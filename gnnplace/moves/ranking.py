"""A learned ranking of moves for searches: a multi-layer perceptron over the features of moves, without torch.

`gnnplace.policies.improver.scorer.MoveScorer` is the same network for training; its weights come from a checkpoint of
the policy `improver`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Float64

from gnnplace.formats import tensor_files
from gnnplace.moves.columns import DRAWN, NAMES

PREFIX = "state_dict/policy.scorer."  # of the network's weights in a checkpoint
DIGITS = 6  # of scores
STEEPNESS = 20.0  # `squashed` is nearly linear below a twentieth and logarithmic above


class Range(NamedTuple):
    """The smallest and the largest number of ops and of devices of the problems that a ranking learned from."""

    ops: tuple[int, int]
    devices: tuple[int, int]

    def outside(self, ops: int, devices: int) -> str | None:
        """The numbers of a problem that are outside the range, in words; None if there are none."""
        parts = [
            f"{number:,} {what}, and it was trained on {low:,} to {high:,}"
            for number, what, (low, high) in ((ops, "ops", self.ops), (devices, "devices", self.devices))
            if not low <= number <= high
        ]
        return "; ".join(parts) or None


@dataclass(frozen=True, eq=False)
class Ranking:
    """A function from the features of moves to scores; moves with higher scores should be tried first.

    Features are squashed, clamped to `low` and `high`, and standardised. Scores are computed in float64 and rounded, so
    that the order of additions in a library does not change the ranking from machine to machine.
    """

    low: Float64[np.ndarray, " features"]
    high: Float64[np.ndarray, " features"]
    mean: Float64[np.ndarray, " features"]
    spread: Float64[np.ndarray, " features"]
    # weights (outputs, inputs) and biases
    layers: tuple[tuple[Float64[np.ndarray, "_ _"], Float64[np.ndarray, "_"]], ...]
    trained_on: Range | None = None

    def __post_init__(self) -> None:
        arrays = [self.mean, self.spread, *(part for layer in self.layers for part in layer)]
        if not all(np.isfinite(each).all() for each in arrays) or not (self.spread > 0).all():
            raise ValueError(
                "ranking: its weights are not finite, or a spread is not above 0: they are damaged, or training "
                "diverged"
            )

    @classmethod
    def of(cls, weights: Mapping[str, Float32[np.ndarray, "..."]], trained_on: Range | None = None) -> Ranking:
        """The ranking with the weights and buffers of a `MoveScorer`, by name."""
        exact = {name: value.astype(np.float64) for name, value in weights.items()}
        layers = tuple(
            (exact[f"layers.{layer}.weight"], exact[f"layers.{layer}.bias"]) for layer in range(len(exact) // 2 - 2)
        )
        return cls(exact["low"], exact["high"], exact["mean"], exact["spread"], layers, trained_on)

    def __call__(self, rows: Float32[np.ndarray, "moves features"]) -> Float64[np.ndarray, " moves"]:
        hidden = (np.clip(squashed(rows.astype(np.float64)), self.low, self.high) - self.mean) / self.spread
        for weight, bias in self.layers[:-1]:
            hidden = np.maximum(hidden @ weight.T + bias, 0.0)
        weight, bias = self.layers[-1]
        return np.round((hidden @ weight.T + bias)[:, 0], DIGITS)


def squashed(rows: Float[np.ndarray, "*moves features"]) -> Float[np.ndarray, "*moves features"]:
    """`sign(x) log(1 + 20 |x|)`: keeps small differences, and reduces large values that would dominate."""
    return np.sign(rows) * np.log1p(STEEPNESS * np.abs(rows))


def read_ranking(path: str | os.PathLike[str]) -> Ranking:
    """The ranking in a checkpoint of the policy `improver`.

    Raises ValueError (one line) for any other file, OSError if unreadable.
    """
    document, tensors = tensor_files.read(path, "numpy", PREFIX)
    weights = {name.removeprefix(PREFIX): value for name, value in tensors.items()}
    if document.get("format") != "gnnplace.checkpoint" or "low" not in weights:
        raise ValueError(f"{path}: is no checkpoint of the policy improver")
    if weights["low"].shape != (len(NAMES) + len(DRAWN),):
        raise ValueError(
            f"{path}: ranks moves by {len(weights['low'])} features, and there are {len(NAMES) + len(DRAWN)}"
        )
    sizes = document["tree"]["gnnplace"]["description"]["range"]
    return Ranking.of(weights, Range(*(tuple(sizes[what]) for what in Range._fields)))
