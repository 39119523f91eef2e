"""Lower bounds on the step time of any feasible placement: proved, so "how far from the best possible" has a floor.

`critical-path`: the longest path with every op on its fastest allowed device and free transfers. `load`: all work at its
fastest over all streams. `prices`: the load with unequal devices. For any prices of the devices' time that sum to 1 over
streams, no step is shorter than the sum of every op's cheapest cost (weak duality of the fractional assignment of ops
to devices; Lenstra, Shmoys and Tardos, 1990), and the prices are raised where load gathers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Int64

from gnnplace.problem import Problem
from gnnplace.transforms.paths import longest_paths

ROUNDS = 300
_bounds: WeakKeyDictionary[Problem, Mapping[str, int]] = WeakKeyDictionary()


def bounds(problem: Problem) -> Mapping[str, int]:
    """Every lower bound in ns by its name, remembered as long as the problem lives."""
    if problem not in _bounds:
        times = _allowed_ns(problem)
        fastest = times.min(axis=1)
        _bounds[problem] = {
            "critical-path": longest_paths(problem.graph, fastest).critical_path_ns,
            "load": -(-int(fastest.sum()) // int(problem.cluster.streams.sum())),
            "prices": _prices(times, problem.cluster.streams),
        }
    return _bounds[problem]


def lower_bound(problem: Problem) -> int:
    """The best of all lower bounds, in ns."""
    return max(bounds(problem).values())


def bound_name(problem: Problem) -> str:
    """The name of the best lower bound, the first of equals."""
    return max(bounds(problem), key=lambda name: bounds(problem)[name])


def _allowed_ns(problem: Problem) -> Int64[np.ndarray, "ops devices"]:
    """Times where an op may stand, elsewhere one that nobody pays; the times of all devices for an op that may stand nowhere."""
    nowhere = ~problem.allowed.any(axis=1, keepdims=True)
    forbidden = np.iinfo(np.int64).max // 4
    return np.where(problem.allowed | nowhere, problem.time_ns, forbidden)


def _prices(times: Int64[np.ndarray, "ops devices"], streams: Int64[np.ndarray, " devices"]) -> int:
    """The best bound that multiplicative updates of the prices find; each set of prices proves its own bound."""
    best, log_price = 0, np.zeros(len(streams))
    for round_ in range(ROUNDS):
        price = np.exp(log_price - log_price.max())
        price /= (price * streams).sum()
        cost = times * price
        best = max(best, _rounded_down(float(cost.min(axis=1).sum()), len(times)))
        choice = cost.argmin(axis=1)
        load = np.bincount(choice, weights=times[np.arange(len(times)), choice], minlength=len(streams)) / streams
        log_price += (load / max(load.max(), 1.0) - 0.5) / math.sqrt(1 + round_)
    return best


def _rounded_down(value: float, terms: int) -> int:
    """A whole number that the exact sum of `terms` rounded products surely reaches."""
    return max(0, math.floor(value * (1 - (terms + 4) * np.finfo(np.float64).eps)))
