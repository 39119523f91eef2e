"""Lower bounds on the step time of every feasible placement, each with a proof: they say how far a placement is from
the optimum at most.

A feasible placement respects `allowed`, keeps colocation groups together, needs only links that exist and fits every
memory. Each bound holds by itself. The module in brackets proves it:

- `critical-path`: the longest path, with each op on the fastest device that allows it and has the memory, and free
  transfers.
- `load`: the least time for all work if units could be split among unequal devices with limited memories (`load`).
- `channels`: as `load`, with what channels carry where state fits no class of devices, so that some of it is not beside
  its readers.
- `paths`: for some op, the least time before it, its own time and the least time after it. This counts transfers that
  no placement avoids, ops that share one device, and the load of its ancestors and descendants (`paths`).
- `transfers`: as `paths` without the load of ancestors and descendants; it replaces `paths` beyond `MOST_QUADRATIC`
  ops.
- `windows`: the load of the ops that can only run within some window of time, plus the least time before and after it
  (`paths`).
- `split`: connected ops either run on one device with enough memory, or an edge between them crosses devices (`paths`).

A bound that shows that no placement is feasible is left out.

With `fusion` the bounds hold for every fusion of the ops, too: they are those of a problem that no fused step beats
(`unfused`).
"""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float

from gnnplace.bounds.channels import channels_ns
from gnnplace.bounds.load import best_prices, load_ns, loads, op_prices
from gnnplace.bounds.paths import Ends, best_window, ends, split_ns, through_ns
from gnnplace.bounds.relaxed import NEVER, Relaxed, relaxed
from gnnplace.bounds.unfused import unfused
from gnnplace.problems import Problem
from gnnplace.result import LeastTimes
from gnnplace.schedules.paths import longest_paths

MOST_QUADRATIC = 20_000  # ops up to which sets of ancestors are computed: 50 MB and about a second
MOST_PRICED = 64  # classes of devices that the load bound distinguishes
MOST_CLASSES = 4  # classes that paths distinguish: their time grows with the square
_bounds: WeakKeyDictionary[Problem, Mapping[str, int]] = WeakKeyDictionary()


def bounds(problem: Problem, fusion: bool = False) -> Mapping[str, int]:
    """Every lower bound in ns, by name. They are computed once and kept as long as the problem lives."""
    if fusion:
        return bounds(unfused(problem))
    if problem not in _bounds:
        priced, classes = relaxed(problem, MOST_PRICED), relaxed(problem, MOST_CLASSES)
        critical_path_ns = longest_paths(problem.graph, priced.fastest_ns).critical_path_ns
        by_name = {"critical-path": critical_path_ns} | _loads_and_paths(priced, classes)
        _bounds[problem] = {name: bound for name, bound in by_name.items() if bound < NEVER}
    return _bounds[problem]


def lower_bound(problem: Problem, fusion: bool = False) -> int:
    """The largest of all lower bounds, in ns."""
    return max(bounds(problem, fusion).values())


def bound_name(problem: Problem, fusion: bool = False) -> str:
    """The name of the largest lower bound; the first on a tie."""
    by_name = bounds(problem, fusion)
    return max(by_name, key=lambda name: by_name[name])


def least_times(problem: Problem) -> LeastTimes:
    """The largest lower bound, and the least time before and after each op on each device."""
    priced, classes = relaxed(problem, MOST_PRICED), relaxed(problem, MOST_CLASSES)
    times = _ends(classes, *op_prices(priced, best_prices(loads(priced))))
    return LeastTimes(int(lower_bound(problem)), times.head_ns[:, classes.class_of], times.tail_ns[:, classes.class_of])


def _ends(classes: Relaxed, price: Float[np.ndarray, " ops"], worth: float) -> Ends:
    return ends(classes, price, worth) if len(price) <= MOST_QUADRATIC else ends(classes)


def _loads_and_paths(priced: Relaxed, classes: Relaxed) -> dict[str, int]:
    needs = loads(priced)
    prices = best_prices(needs)
    price, worth = op_prices(priced, prices)
    quadratic = len(price) <= MOST_QUADRATIC
    times = _ends(classes, price, worth)
    through = through_ns(classes, times)
    bounds = {"load": load_ns(needs, prices), "paths" if quadratic else "transfers": through}
    if (channels := channels_ns(priced)) > 0:
        bounds["channels"] = channels
    if through >= NEVER:
        return bounds
    window = best_window(times.head_ns.min(axis=1), times.tail_ns.min(axis=1), price)
    inside = loads(priced, window.ops)
    within = max(load_ns(inside, prices), load_ns(inside, best_prices(inside)))
    return bounds | {"windows": window.head_ns + within + window.tail_ns, "split": split_ns(classes, times)}
