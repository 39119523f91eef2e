"""Lower bounds on the step time of any feasible placement: proved, so "how far from the best possible" has a floor.

Feasible: legal, groups whole, all links there, every memory large enough. Each bound holds by itself; files named prove theirs:

- `critical-path`: the longest path with every op on its fastest device where it is allowed and fits, and free transfers.
- `load`: all work, divided as if units could be split among unequal devices and their memories (`load`).
- `paths`: for some op, what must come before it, itself, and what must come after it, counting transfers that no placement
  avoids, ops that wait for one device, and the load of its ancestors and descendants (`paths`).
- `transfers`: the same without the load of ancestors and descendants, instead of `paths` beyond `MOST_QUADRATIC` ops.
- `windows`: the load of the ops that can only run in some window of time, and what is left at its ends (`windows`).
- `split`: ops that hang together stand on one device, if it holds them, or something is sent between them (`split`).

A bound that finds that no placement is feasible at all is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float

from gnnplace.bounds.load import best_prices, load_ns, loads, op_prices
from gnnplace.bounds.paths import Ends, ends, through_ns
from gnnplace.bounds.relaxed import NEVER, Relaxed, relaxed
from gnnplace.bounds.split import split_ns
from gnnplace.bounds.windows import best_window
from gnnplace.problems import Problem
from gnnplace.result import LeastTimes
from gnnplace.schedules.paths import longest_paths

MOST_QUADRATIC = 20_000  # ops up to which ancestors are told apart: 50 MB, and about a second
MOST_PRICED = 64  # classes of devices with prices of their own
MOST_CLASSES = 4  # classes that paths tell apart: their time grows with the square
_bounds: WeakKeyDictionary[Problem, Mapping[str, int]] = WeakKeyDictionary()


def bounds(problem: Problem) -> Mapping[str, int]:
    """Every lower bound in ns by its name, remembered as long as the problem lives."""
    if problem not in _bounds:
        priced, classes = relaxed(problem, MOST_PRICED), relaxed(problem, MOST_CLASSES)
        found = {"critical-path": longest_paths(problem.graph, priced.fastest_ns).critical_path_ns} | _loads_and_paths(priced, classes)
        _bounds[problem] = {name: bound for name, bound in found.items() if bound < NEVER}
    return _bounds[problem]


def lower_bound(problem: Problem) -> int:
    """The best of all lower bounds, in ns."""
    return max(bounds(problem).values())


def bound_name(problem: Problem) -> str:
    """The name of the best lower bound, the first of equals."""
    return max(bounds(problem), key=lambda name: bounds(problem)[name])


def least_times(problem: Problem) -> LeastTimes:
    """The best bound, and the heads and tails that bounds are made of."""
    priced, classes = relaxed(problem, MOST_PRICED), relaxed(problem, MOST_CLASSES)
    found = _ends(classes, *op_prices(priced, best_prices(loads(priced))))
    return LeastTimes(int(lower_bound(problem)), found.head_ns[:, classes.class_of], found.tail_ns[:, classes.class_of])


def _ends(classes: Relaxed, price: Float[np.ndarray, " ops"], worth: float) -> Ends:
    return ends(classes, price, worth) if len(price) <= MOST_QUADRATIC else ends(classes)


def _loads_and_paths(priced: Relaxed, classes: Relaxed) -> dict[str, int]:
    needs = loads(priced)
    prices = best_prices(needs)
    price, worth = op_prices(priced, prices)
    quadratic = len(price) <= MOST_QUADRATIC
    found = _ends(classes, price, worth)
    through = through_ns(classes, found)
    bounds = {"load": load_ns(needs, prices), "paths" if quadratic else "transfers": through}
    if through >= NEVER:
        return bounds
    window = best_window(found.head_ns.min(axis=1), found.tail_ns.min(axis=1), price)
    inside = loads(priced, window.ops)
    within = max(load_ns(inside, prices), load_ns(inside, best_prices(inside)))
    return bounds | {"windows": window.head_ns + within + window.tail_ns, "split": split_ns(classes, found)}
