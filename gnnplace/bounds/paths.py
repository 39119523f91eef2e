"""Heads and tails: the least time before an op starts and after it ends, on each class of devices.

One pass over the ops in topological order combines three arguments. Each uses the heads of earlier ops:

- **path**: an op starts after each input has ended and, unless the input is on a device of the same class, has been sent.
- **load**: all ancestors whose head is at least a must run after a and before the op. So the op starts at least their load after a, for
  every a (Fernandez and Bussell, 1973). The load is taken at given prices of devices (`load`).
- **together or apart**: an ancestor on another device than the op causes a transfer on every path to it. Ancestors on the op's own device
  share its streams and its memory. If the op starts at b, every ancestor whose transfer would arrive after b is on the op's device. With
  ancestors in falling order of that arrival, b is at least the minimum over j of the larger of two times: the end of the first j on one
  device, and the arrival from the next one. Papadimitriou and Yannakakis (1990) prove this even if ops may be duplicated.

Tails are the heads of the reversed graph. Times are in ns; `NEVER` marks a class on which no feasible placement puts the op.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.bounds.kernel import ancestors, heads
from gnnplace.bounds.relaxed import NEVER, Relaxed


class Ends(NamedTuple):
    """The least time before an op starts and after it ends, if it is on a device of the class."""

    head_ns: Int64[np.ndarray, "ops classes"]
    tail_ns: Int64[np.ndarray, "ops classes"]


def ends(relaxed: Relaxed, price: Float[np.ndarray, " ops"] | None = None, worth: float = 0.0) -> Ends:
    """Heads and tails. Without prices the load of ancestors does not count; with prices the time is quadratic in the number of ops."""
    graph = relaxed.graph
    forward = (graph.in_ptr, graph.edge_src[graph.in_edges], relaxed.delay_ns[graph.in_edges])
    backward = (graph.out_ptr, graph.edge_dst, relaxed.delay_ns.transpose(0, 2, 1))
    found = []
    for order, (ptr, before, delay) in ((graph.order, forward), (graph.order[::-1], backward)):
        order, before, delay = order.astype(np.int64), before.astype(np.int64), np.ascontiguousarray(delay)
        above = np.zeros((0, 0), np.uint64) if price is None else ancestors(order, ptr, before)
        weight = np.zeros(0) if price is None else price
        machine = (relaxed.time_ns, relaxed.streams, relaxed.held_bytes, relaxed.memory_bytes)
        found.append(heads(order, ptr, before, delay, machine, above, weight, worth, (graph.num_ops + 16) * 2.0**-51))
    return Ends(*found)


def through_ns(relaxed: Relaxed, found: Ends) -> int:
    """The `paths` bound in ns: the largest, over units, of head + time + tail on the best class. `NEVER`: no placement is feasible."""
    whole = np.zeros((relaxed.units.num_units, relaxed.num_classes), dtype=np.int64)
    np.maximum.at(whole, relaxed.units.unit, np.minimum(found.head_ns + relaxed.time_ns + found.tail_ns, NEVER))
    return int(whole.min(axis=1).max())
