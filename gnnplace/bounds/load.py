"""The load bound: the least time for all work if units could be split among devices.

Minimise T such that on each device the time of its units is at most T times its streams and their bytes fit its memory,
where a unit may be split into fractions. This is the linear relaxation of scheduling on unrelated machines (Lenstra,
Shmoys and Tardos, 1990) with a knapsack for each memory. Its dual has few variables: a price for the time and one for
the memory of each class of devices. Cutting planes solve it (Kelley, 1960): under given prices every unit takes its
cheapest class, and the resulting load is a new row of a small linear program. Equal devices share prices, because the
average of an optimal solution over them is optimal too.

Any non-negative prices prove a bound (weak duality): the sum of the cheapest costs of all units minus the value of all
memory is at most T times the value of all streams. So neither the accuracy of the solver nor stopping it early can make
the bound wrong.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.bounds.highs import LinearProgram, solved
from gnnplace.bounds.relaxed import NEVER, Relaxed

MAX_ROUNDS = 60
GAP = 1e-5  # relative distance to the optimum at which the search for prices stops
EPSILON = float(np.finfo(np.float64).eps)


class Loads(NamedTuple):
    """The time of each unit on each class (infinite if forbidden), its share of the memory, and the streams."""

    time_ns: Float[np.ndarray, "units classes"]
    share: Float[np.ndarray, "units classes"]
    streams: Float[np.ndarray, " classes"]


class Prices(NamedTuple):
    """The price of a nanosecond of one stream, and of the whole memory, of each class.

    All streams together are worth 1.
    """

    time: Float[np.ndarray, " classes"]
    memory: Float[np.ndarray, " classes"]


def loads(relaxed: Relaxed, among: np.ndarray | None = None, times: Int64[np.ndarray, " ops"] | None = None) -> Loads:
    """The loads of units that consist only of the ops `among` (a mask; None: all ops), each run `times` times."""
    ops = np.arange(relaxed.graph.num_ops) if among is None else np.flatnonzero(among)
    labels, unit = np.unique(relaxed.units.unit[ops], return_inverse=True)
    single, often = _op_loads(relaxed), 1 if times is None else times[ops, None]
    time, share = (np.zeros((len(labels), relaxed.num_classes)) for _ in range(2))
    np.add.at(time, unit, single.time_ns[ops] * often)
    np.add.at(share, unit, single.share[ops] * often)
    return Loads(time, share, single.streams)


def _op_loads(relaxed: Relaxed) -> Loads:
    """The loads of single ops."""
    capacity = np.maximum(relaxed.memory_bytes * relaxed.num_devices.astype(np.float64), 1.0)
    time = np.where(relaxed.time_ns < NEVER, relaxed.time_ns.astype(np.float64), np.inf)
    return Loads(
        time, relaxed.held_bytes[:, None] / capacity, (relaxed.streams * relaxed.num_devices).astype(np.float64)
    )


def best_prices(needs: Loads) -> Prices:
    """Prices whose bound is within `GAP` of the optimum of the linear program, or the best ones after `MAX_ROUNDS`."""
    classes = len(needs.streams)
    prices = Prices(np.full(classes, 1 / needs.streams.sum()), np.zeros(classes))
    best, optimum, rows = -1.0, prices, []
    for _ in range(MAX_ROUNDS):
        value, row = _cheapest(needs, prices)
        best, optimum = max((best, optimum), (value, prices), key=lambda pair: pair[0])
        rows.append(row)
        limit, prices = _master(needs, np.array(rows), prices)
        if limit - best <= GAP * best:
            break
    return optimum


def load_ns(needs: Loads, prices: Prices) -> int:
    """The bound that these prices prove, in ns.

    It allows for rounding errors, and is rounded up since a step takes whole nanoseconds.
    """
    gain, loss = float(_costs(needs, prices).min(axis=1).sum()), float(prices.memory.sum())
    worth = float((prices.time * needs.streams).sum())
    error = (len(needs.time_ns) + 3 * len(needs.streams) + 16) * EPSILON
    return max(0, math.ceil((gain * (1 - error) - loss * (1 + error)) / worth * (1 - 4 * EPSILON)))


def op_prices(relaxed: Relaxed, prices: Prices) -> tuple[Float[np.ndarray, " ops"], float]:
    """The least cost of each op, and the value of all memory, in ns.

    Any set of ops takes at least its total cost minus that value.
    """
    needs = _op_loads(relaxed)
    worth = float((prices.time * needs.streams).sum())
    return _costs(needs, prices).min(axis=1) / worth, float(prices.memory.sum()) / worth


def _costs(needs: Loads, prices: Prices) -> Float[np.ndarray, "units classes"]:
    forbidden = np.isinf(needs.time_ns)
    cost = np.where(forbidden, 0.0, needs.time_ns) * prices.time + needs.share * prices.memory
    return np.where(forbidden, np.inf, cost)


def _cheapest(needs: Loads, prices: Prices) -> tuple[float, Float[np.ndarray, " two_classes"]]:
    """The value of prices, and the load of the cheapest choice.

    The load is the time of each class, then the share of each memory minus 1.
    """
    cost = _costs(needs, prices)
    choice, classes = cost.argmin(axis=1), len(needs.streams)
    units = np.arange(len(cost))
    time = np.bincount(choice, weights=needs.time_ns[units, choice], minlength=classes)
    share = np.bincount(choice, weights=needs.share[units, choice], minlength=classes)
    return float(cost[units, choice].sum() - prices.memory.sum()), np.concatenate([time, share - 1.0])


def _master(needs: Loads, rows: Float[np.ndarray, "rows two_classes"], last: Prices) -> tuple[float, Prices]:
    """The largest bound that any prices can prove given the choices so far, and those prices.

    0 and the last prices if the solver fails. The price of memory is limited by the time of all units on their slowest
    classes; units that fit nowhere would make it infinite.
    """
    classes = len(needs.streams)
    most = float(np.where(np.isinf(needs.time_ns), 0.0, needs.time_ns).max(axis=1).sum())
    unit = max(most, 1.0)  # scales times by the whole work, since the tolerances of the solver are absolute
    table = np.concatenate([-rows / np.array([unit] * classes + [1.0] * classes), np.ones((len(rows), 1))], axis=1)
    program = LinearProgram(
        cost=np.append(np.zeros(2 * classes), -1.0), table=table,
        whole=np.concatenate([needs.streams, np.zeros(classes + 1)]),
        low=np.append(np.zeros(2 * classes), -np.inf), high=np.repeat([np.inf, 1.0, np.inf], [classes, classes, 1]),
    )  # fmt: skip
    if (best := solved(program)) is None:
        return 0.0, last
    solution = np.maximum(best.x, 0.0)
    return -best.value * unit, Prices(solution[:classes], solution[classes : 2 * classes] * unit)
