"""Lower bounds on the steps of several micro-batches in every form: any replicas, shares, copies and homes.

They are bounds of the least step (`least_step`), which every form contains:

- `critical-path`, `paths`: those of one micro-batch and the update.
- `load`: all copies, one update, and the sums of gradients.
- `windows`: the copies, and sums of gradients, that can only run within some window of time, plus the least time before
  and after it. Every sum comes after some micro-batch has made the gradient, and before the update.
- `traffic`: as `load`, with the transfers that a division of each micro-batch among unequal devices takes (`traffic`).

The module `bounds` says what these mean. The graph is that of one micro-batch, so the bounds take about as long as
those of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.bounds.least_step import LeastStep, least_step
from gnnplace.bounds.load import Loads, best_prices, load_ns, loads, op_prices
from gnnplace.bounds.paths import Ends, best_window, ends, through_ns
from gnnplace.bounds.relaxed import NEVER, Relaxed
from gnnplace.bounds.traffic import traffic_ns
from gnnplace.cluster import Cluster
from gnnplace.graph import ComputationGraph
from gnnplace.problems import Problem
from gnnplace.schedules.paths import longest_paths

MOST_QUADRATIC = 20_000  # ops up to which sets of ancestors are computed
MOST_PRICED = 64  # classes of devices that load and traffic distinguish
MOST_CLASSES = 4  # classes that paths distinguish


class Known(NamedTuple):
    """Bounds of a graph of one micro-batch, with what they hold for."""

    micro_batches: int
    shared: tuple[str, ...]
    cluster: Cluster
    time_ns: Int64[np.ndarray, "ops devices"]
    bounds: Mapping[str, int]


_known: WeakKeyDictionary[ComputationGraph, list[Known]] = WeakKeyDictionary()


def bounds_of_forms(problem: Problem) -> Mapping[str, int]:
    """Every lower bound in ns, by name, on the steps of a problem of several micro-batches in every form.

    They are computed once for all forms, and kept as long as the graph of one micro-batch lives.

        >>> from gnnplace.corpus import manifest
        >>> from gnnplace.corpus.clusters import cluster
        >>> from gnnplace.costs.roofline import problem
        >>> from gnnplace.transformations.parallelism import Parallelism
        >>> step = Parallelism(8).of(manifest.graph("dlrm"))
        >>> sorted(bounds_of_forms(problem(step, cluster("mixed-4"))))
        ['critical-path', 'load', 'paths', 'traffic', 'windows']
    """
    least, copies = least_step(problem), problem.graph.copies
    assert copies is not None
    of_graph = _known.setdefault(copies.original, [])
    for number, shared, cluster, time_ns, bounds in of_graph:
        same = (number, shared, cluster) == (least.micro_batches, copies.shared, problem.cluster)
        if same and np.array_equal(time_ns, least.posed.time_ns):
            return bounds
    bounds = {name: bound for name, bound in _bounds(least).items() if bound < NEVER}
    of_graph.append(Known(least.micro_batches, copies.shared, problem.cluster, least.posed.time_ns, bounds))
    return bounds


def _bounds(least: LeastStep) -> dict[str, int]:
    priced, classes = least.relaxed(MOST_PRICED), least.relaxed(MOST_CLASSES)
    critical_path_ns = longest_paths(least.posed.graph, priced.fastest_ns).critical_path_ns
    by_name = {"critical-path": critical_path_ns} | _loads_and_paths(least, priced, classes)
    return by_name | ({"traffic": traffic} if (traffic := traffic_ns(least, priced)) > 0 else {})


def _loads_and_paths(least: LeastStep, priced: Relaxed, classes: Relaxed) -> dict[str, int]:
    adding = least.adding_ns(priced)
    needs = _beside(loads(priced, None, least.times), adding)
    prices = best_prices(needs)
    price, worth = op_prices(priced, prices)
    times = ends(classes, price, worth) if len(price) <= MOST_QUADRATIC else ends(classes)
    bounds = {"load": load_ns(needs, prices), "paths": through_ns(classes, times)}
    if bounds["paths"] >= NEVER:
        return bounds
    add_price = (adding * prices.time).min(axis=1, initial=np.inf) / (prices.time * needs.streams).sum()
    head_ns, tail_ns = _ends(least, classes, times)
    window = best_window(head_ns, tail_ns, np.concatenate([price * least.times, add_price]))
    ops, added = window.ops[: len(price)], window.ops[len(price) :]
    inside = _beside(loads(priced, ops, least.times), adding[added])
    within = max(load_ns(inside, prices), load_ns(inside, best_prices(inside)))
    return bounds | {"windows": window.head_ns + within + window.tail_ns}


def _beside(needs: Loads, adding: Float[np.ndarray, "added classes"]) -> Loads:
    """These loads and, as one unit more, that of sums and concatenations."""
    total = adding.sum(axis=0)[None]
    return Loads(np.vstack([needs.time_ns, total]), np.vstack([needs.share, 0 * total]), needs.streams)


def _ends(
    least: LeastStep, classes: Relaxed, times: Ends
) -> tuple[Int64[np.ndarray, " both"], Int64[np.ndarray, " both"]]:
    """The least time before and after each op and, after these, each sum: after the op that makes what is added up, and
    before any op that reads the sum.
    """
    one = least.one
    ended, left = ((each + classes.time_ns).min(axis=1) for each in (times.head_ns, times.tail_ns))
    after = np.full(len(one.output_bytes), NEVER, dtype=np.int64)
    np.minimum.at(after, one.edge_data[least.gathered], left[one.edge_dst[least.gathered]])
    head_ns = np.concatenate([times.head_ns.min(axis=1), ended[one.output_op[least.added]]])
    return head_ns, np.concatenate([times.tail_ns.min(axis=1), after[least.added]])
