"""Heads and tails: before when no op can start, and how long a step lasts at least after it, on each class of devices.

Three arguments, taken together in one pass over the ops in topological order, each using what it found for earlier ops:

- **path**: an op starts after each of its inputs has ended and, unless that stands on a device of the same class, has been sent.
- **load**: what must end before it runs between the first start among it and its own, so for every a, the ancestors whose head
  is at least a take together their load (at given prices of devices, `load`) after a (Fernandez and Bussell, 1973).
- **together or apart**: an ancestor on another device sends something on every path to the op; ancestors on the op's own device
  run there one after another, as many at a time as it has streams, if they fit its memory at all. If b is the time at which the
  op starts, the ancestors from which anything sent would arrive after b stand on its device; so, these taken in the order of that
  arrival, b is at least the least over j of max(time of the first j on one device, arrival from the one after them): Papadimitriou
  and Yannakakis (1990), who allow ops to be repeated, so placements without repetition are no faster.

Tails are the heads of the reversed graph. Times are ns; `NEVER` is a class where the op stands in no feasible placement.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.bounds.kernel import ancestors, heads
from gnnplace.bounds.relaxed import NEVER, Relaxed


class Ends(NamedTuple):
    """Least times before an op starts and after it ends, if it stands on a device of the class."""

    head_ns: Int64[np.ndarray, "ops classes"]
    tail_ns: Int64[np.ndarray, "ops classes"]


def ends(made: Relaxed, price: Float[np.ndarray, " ops"] | None = None, worth: float = 0.0) -> Ends:
    """Heads and tails; without prices those of paths and transfers alone. With them it takes time quadratic in the ops."""
    graph = made.graph
    forward = (graph.in_ptr, graph.edge_src[graph.in_edges], made.delay_ns[graph.in_edges])
    backward = (graph.out_ptr, graph.edge_dst, made.delay_ns.transpose(0, 2, 1))
    found = []
    for order, (ptr, before, delay) in ((graph.order, forward), (graph.order[::-1], backward)):
        order, before, delay = order.astype(np.int64), before.astype(np.int64), np.ascontiguousarray(delay)
        above = np.zeros((0, 0), np.uint64) if price is None else ancestors(order, ptr, before)
        weight = np.zeros(0) if price is None else price
        machine = (made.time_ns, made.streams, made.held_bytes, made.memory_bytes)
        found.append(heads(order, ptr, before, delay, machine, above, weight, worth, (graph.num_ops + 16) * 2.0**-51))
    return Ends(*found)


def through_ns(made: Relaxed, found: Ends) -> int:
    """The longest that a step lasts through a unit's ops on the class that is best for all of them, in ns; `NEVER`: nothing is feasible."""
    whole = np.zeros((made.units.num_units, made.num_classes), dtype=np.int64)
    np.maximum.at(whole, made.units.unit, np.minimum(found.head_ns + made.time_ns + found.tail_ns, NEVER))
    return int(whole.min(axis=1).max())
