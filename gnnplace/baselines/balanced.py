"""Placements from a partitioner: parts of balanced work, and of balanced bytes if parts of balanced work do not fit.

METIS (through its Python package) and Scotch balance a single weight. So the weight mixes work and bytes, with a
growing share of bytes until a placement fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int64, Shaped

from gnnplace.baselines.legal import legalised
from gnnplace.baselines.single import fastest_that_fits
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.units import Units, expand

OF_BYTES = (0.0, 0.5, 0.9)  # shares of bytes in the weight that parts balance
FEWER = 4  # weights with bytes get this many times fewer seeds

# a function from a share of bytes and a number of seeds to partitions: the part of each unit
Parts = Callable[[float, int], Sequence[Int64[np.ndarray, " units"]]]


def balanced(
    problem: Problem,
    evaluate: Evaluator,
    units: Units,
    devices: Int64[np.ndarray, " parts"],
    parts: Parts,
    seeds: int,
    schedule: Schedule,
) -> Placement:
    """The fastest placement for the first share of bytes with which one fits.

    Raises ValueError if a unit is allowed on no device.
    """

    def placements(share: float) -> list[Placement]:
        partitions = parts(share, max(1, seeds // FEWER) if share else seeds)
        return [Placement(expand(units, legalised(problem, units, devices[part])), schedule) for part in partitions]

    return fastest_that_fits(problem, map(placements, OF_BYTES), evaluate)


def mixed(
    weight: Float[np.ndarray, " weights"], other: Shaped[np.ndarray, " weights"], share: float
) -> Float[np.ndarray, " weights"]:
    """A mean of two weights in which `other` has a `share` of the sum."""
    return (1 - share) * weight + share * float(weight.sum()) / max(1.0, float(other.sum())) * other
