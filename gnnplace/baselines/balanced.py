"""Parts of balanced work, as a partitioner makes them, and of balanced bytes where those of balanced work do not fit.

METIS (through its Python package) and Scotch balance one weight. A share of bytes in it makes room step by step.
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
FEWER = 4  # times fewer seeds for those that balance bytes

# a share of bytes and the number of seeds to the parts of units
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
    """The fastest placement of the parts of a share, the first under which one fits.

    Raises ValueError where a unit is allowed nowhere.
    """

    def placed(share: float) -> list[Placement]:
        partitions = parts(share, max(1, seeds // FEWER) if share else seeds)
        return [Placement(expand(units, legalised(problem, units, devices[part])), schedule) for part in partitions]

    return fastest_that_fits(problem, map(placed, OF_BYTES), evaluate)


def mixed(
    weight: Float[np.ndarray, " weights"], other: Shaped[np.ndarray, " weights"], share: float
) -> Float[np.ndarray, " weights"]:
    """Weights of which a share of the sum is another's."""
    return (1 - share) * weight + share * float(weight.sum()) / max(1.0, float(other.sum())) * other
