"""Geometric means of ratios in which every family of graphs weighs the same, with intervals from families drawn again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from math import exp, log
from typing import NamedTuple

import numpy as np

DRAWS = 10_000
FEWEST = 3  # families that an interval needs

Times = Mapping[str, Sequence[int | None]]  # of problems, by seed; a single time counts for every seed
Logs = Mapping[str, Sequence[float]]  # of problems, as many as there are pairs


class Interval(NamedTuple):
    """A geometric mean and, from `FEWEST` families on, the 95 % interval around it."""

    mean: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.low is None else f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


def compared(above: Times, below: Times) -> dict[str, list[float]]:
    """The logarithms of the ratios of each problem, seed by seed, where both placements fit."""
    return {name: [log(a / b) for a, b in zip(above[name], cycle(below[name]), strict=False) if a and b] for name in above}


def geometric(logs: Logs, family_of: Mapping[str, str]) -> Interval | None:
    """The mean over families of their problems' means, None where there is none. The draws are the same every time."""
    families: dict[str, list[float]] = {}
    for name, values in logs.items():
        if values:
            families.setdefault(family_of[name], []).append(float(np.mean(values)))
    if not families:
        return None
    means = np.array([np.mean(values) for values in families.values()])
    if len(means) < FEWEST:
        return Interval(exp(means.mean()))
    drawn = np.random.default_rng(0).choice(means, (DRAWS, len(means))).mean(axis=1)
    low, high = np.exp(np.quantile(drawn, (0.025, 0.975)))
    return Interval(exp(means.mean()), float(low), float(high))
