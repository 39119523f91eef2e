"""The load bound: the least time in which the devices could do all the work if units could be split among them.

minimise T subject to: the time of the units on a device <= T * its streams, the bytes that they hold there <= its memory; a
unit stands in fractions. That is the linear relaxation of scheduling unrelated machines (Lenstra, Shmoys and Tardos, 1990) with
a knapsack for each memory. Its dual has few variables, a price for each class' time and memory, and is solved by cutting planes
(Kelley, 1960): for given prices every unit takes its cheapest class, and what that loads is a new row of a small linear program.
Equal devices share prices: averaged over them, an optimal solution stays one.

Any prices that are not negative prove a bound (weak duality): the units' cheapest costs, less what all memory is worth, are at
most T times what all streams are worth. So neither the solver's accuracy nor an early end can make the bound wrong.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog

from gnnplace.bounds.relaxed import NEVER, Relaxed

MAX_ROUNDS = 60
GAP = 1e-5  # relative distance to the linear program's optimum at which prices are good enough
EPSILON = float(np.finfo(np.float64).eps)


class Loads(NamedTuple):
    """What units need: `time_ns[u, c]` (infinite where forbidden) and `share[u, c]` of a class' whole memory; streams of a class."""

    time_ns: Float[np.ndarray, "units classes"]
    share: Float[np.ndarray, "units classes"]
    streams: Float[np.ndarray, " classes"]


class Prices(NamedTuple):
    """Of a nanosecond of one stream, and of the whole memory, of each class: all streams together are worth 1."""

    time: Float[np.ndarray, " classes"]
    memory: Float[np.ndarray, " classes"]


def loads(made: Relaxed, among: np.ndarray | None = None) -> Loads:
    """The loads of units, of which only the ops `among` (a mask; None: all) have work."""
    ops = np.arange(made.graph.num_ops) if among is None else np.flatnonzero(among)
    labels, unit = np.unique(made.units.unit[ops], return_inverse=True)
    single = _op_loads(made)
    time, share = (np.zeros((len(labels), made.num_classes)) for _ in range(2))
    np.add.at(time, unit, single.time_ns[ops])
    np.add.at(share, unit, single.share[ops])
    return Loads(time, share, single.streams)


def _op_loads(made: Relaxed) -> Loads:
    """The same of single ops."""
    capacity = np.maximum(made.memory_bytes * made.num_devices.astype(np.float64), 1.0)
    time = np.where(made.time_ns < NEVER, made.time_ns.astype(np.float64), np.inf)
    return Loads(time, made.held_bytes[:, None] / capacity, (made.streams * made.num_devices).astype(np.float64))


def best_prices(needs: Loads) -> Prices:
    """Prices whose bound is the linear program's optimum but for `GAP`, or the best that `MAX_ROUNDS` find."""
    classes = len(needs.streams)
    prices = Prices(np.full(classes, 1 / needs.streams.sum()), np.zeros(classes))
    best, found, rows = -1.0, prices, []
    for _ in range(MAX_ROUNDS):
        value, row = _cheapest(needs, prices)
        best, found = max((best, found), (value, prices), key=lambda pair: pair[0])
        rows.append(row)
        limit, prices = _master(needs, np.array(rows), prices)
        if limit - best <= GAP * best:
            break
    return found


def load_ns(needs: Loads, prices: Prices) -> int:
    """The bound that these prices prove, in ns; rounding is counted against it, and as a step lasts whole nanoseconds, it is rounded up."""
    gain, loss = float(_costs(needs, prices).min(axis=1).sum()), float(prices.memory.sum())
    worth = float((prices.time * needs.streams).sum())
    error = (len(needs.time_ns) + 3 * len(needs.streams) + 16) * EPSILON
    return max(0, math.ceil((gain * (1 - error) - loss * (1 + error)) / worth * (1 - 4 * EPSILON)))


def op_prices(made: Relaxed, prices: Prices) -> tuple[Float[np.ndarray, " ops"], float]:
    """What each op costs at least, and what all memory is worth, per nanosecond of the step: any ops take the sum less that worth."""
    needs = _op_loads(made)
    worth = float((prices.time * needs.streams).sum())
    return _costs(needs, prices).min(axis=1) / worth, float(prices.memory.sum()) / worth


def _costs(needs: Loads, prices: Prices) -> Float[np.ndarray, "units classes"]:
    forbidden = np.isinf(needs.time_ns)
    cost = np.where(forbidden, 0.0, needs.time_ns) * prices.time + needs.share * prices.memory
    return np.where(forbidden, np.inf, cost)


def _cheapest(needs: Loads, prices: Prices) -> tuple[float, Float[np.ndarray, " two_classes"]]:
    """The value of prices, and what the cheapest choice loads: time of each class, share of its memory beyond all of it."""
    cost = _costs(needs, prices)
    choice, classes = cost.argmin(axis=1), len(needs.streams)
    units = np.arange(len(cost))
    time = np.bincount(choice, weights=needs.time_ns[units, choice], minlength=classes)
    share = np.bincount(choice, weights=needs.share[units, choice], minlength=classes)
    return float(cost[units, choice].sum() - prices.memory.sum()), np.concatenate([time, share - 1.0])


def _master(needs: Loads, rows: Float[np.ndarray, "rows two_classes"], last: Prices) -> tuple[float, Prices]:
    """The most that any prices can prove, by the choices so far, and those prices; the last ones and 0 where the solver gives up.

    Memory is worth no more than all units where they are slowest: without a limit, units that fit nowhere make it worth everything.
    """
    classes = len(needs.streams)
    most = float(np.where(np.isinf(needs.time_ns), 0.0, needs.time_ns).max(axis=1).sum())
    unit = max(most, 1.0)  # time in units of the whole work: the solver's tolerances are absolute
    table = np.concatenate([-rows / np.array([unit] * classes + [1.0] * classes), np.ones((len(rows), 1))], axis=1)
    solved = linprog(
        [0.0] * (2 * classes) + [-1.0], A_ub=table, b_ub=np.zeros(len(rows)),
        A_eq=[[*needs.streams, *[0.0] * classes, 0.0]], b_eq=[1.0], bounds=[(0, None)] * classes + [(0, 1)] * classes + [(None, None)],
        method="highs",
    )  # fmt: skip
    if solved.x is None:
        return 0.0, last
    found = np.maximum(solved.x, 0.0)
    return float(-solved.fun) * unit, Prices(found[:classes], found[classes : 2 * classes] * unit)
