"""Heads and tails: the least time before an op starts and after it ends, on each class of devices; bounds from them.

One pass over the ops in topological order combines three arguments. Each uses the heads of earlier ops:

- **path**: an op starts after each input has ended and, unless the input is on a device of the same class, has been
  sent.
- **load**: all ancestors whose head is at least a must run after a and before the op. So the op starts at least their
  load after a, for every a (Fernandez and Bussell, 1973). The load is taken at given prices of devices (`load`).
- **together or apart**: an ancestor on another device than the op causes a transfer on every path to it. Ancestors on
  the op's own device share its streams and its memory. If the op starts at b, every ancestor whose transfer would
  arrive after b is on the op's device. With ancestors in falling order of that arrival, b is at least the minimum over
  j of the larger of two times: the end of the first j on one device, and the arrival from the next one. Papadimitriou
  and Yannakakis (1990) prove this even if ops may be duplicated.

Tails are the heads of the reversed graph. Times are in ns; `NEVER` marks a class on which no feasible placement puts
the op.

Three bounds follow:

- **paths** (`through_ns`): head, time and tail of an op on its best class.
- **split** (`split_ns`): the ops of a connected component are all on one device, or some edge crosses devices. On one
  device, the step takes at least the work of the component there, and the memory must hold it. If an edge crosses
  devices, the step takes at least the head of its source, the source, the transfer, the destination and its tail, at
  the best edge and devices. The bound is strong for a component that fits no memory, and weak for a large one, which
  mostly has an edge with slack.
- **windows** (`best_window`): ops that start at a or later and have at least b of the step left after them run between
  a and T - b. So T >= a + load + b for every set {head >= a, tail >= b} (Fernandez and Bussell, 1973; Jackson, 1955,
  for one machine). Sorting finds the best set among many at given prices; the load of that set is then bounded again,
  by the best prices for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64

from gnnplace.bounds.kernel import ancestors, heads
from gnnplace.bounds.relaxed import NEVER, Relaxed
from gnnplace.units.variables import join

MAX_HEADS = 256  # values of a that are tried: quantiles of the heads


class Ends(NamedTuple):
    """The least time before an op starts and after it ends, if it is on a device of the class."""

    head_ns: Int64[np.ndarray, "ops classes"]
    tail_ns: Int64[np.ndarray, "ops classes"]


def ends(relaxed: Relaxed, price: Float[np.ndarray, " ops"] | None = None, worth: float = 0.0) -> Ends:
    """Heads and tails.

    Without prices the load of ancestors does not count; with prices the time is quadratic in the number of ops.
    """
    graph = relaxed.graph
    forward = (graph.in_ptr, graph.edge_src[graph.in_edges], relaxed.delay_ns[graph.in_edges])
    backward = (graph.out_ptr, graph.edge_dst, relaxed.delay_ns.transpose(0, 2, 1))
    head_and_tail = []
    for order, (ptr, before, delay) in ((graph.order, forward), (graph.order[::-1], backward)):
        order, before, delay = order.astype(np.int64), before.astype(np.int64), np.ascontiguousarray(delay)
        above = np.zeros((0, 0), np.uint64) if price is None else ancestors(order, ptr, before)
        weight = np.zeros(0) if price is None else price
        machine = (relaxed.time_ns, relaxed.streams, relaxed.held_bytes, relaxed.memory_bytes)
        head_and_tail.append(
            heads(order, ptr, before, delay, machine, above, weight, worth, (graph.num_ops + 16) * 2.0**-51)
        )
    return Ends(*head_and_tail)


def through_ns(relaxed: Relaxed, times: Ends) -> int:
    """The `paths` bound in ns: the largest, over units, of head + time + tail on the best class.

    `NEVER`: no placement is feasible.
    """
    whole = np.zeros((relaxed.units.num_units, relaxed.num_classes), dtype=np.int64)
    np.maximum.at(whole, relaxed.units.unit, np.minimum(times.head_ns + relaxed.time_ns + times.tail_ns, NEVER))
    return int(whole.min(axis=1).max())


def split_ns(relaxed: Relaxed, times: Ends) -> int:
    """The largest, over components, of the smaller of both cases, in ns; `NEVER` if neither case is possible."""
    graph, count = relaxed.graph, relaxed.graph.num_ops
    label = join(relaxed.units.unit.astype(np.int64), graph.edge_src, graph.edge_dst)
    cut = np.full(count, NEVER, dtype=np.int64)
    np.minimum.at(cut, label[graph.edge_src], _cut_ns(relaxed, times))
    whole = _whole_ns(relaxed, label, count).min(axis=1)
    return int(np.minimum(cut, whole).max())


def _cut_ns(relaxed: Relaxed, times: Ends) -> Int64[np.ndarray, " edges"]:
    """The least step time if the edge crosses devices."""
    src, dst = relaxed.graph.edge_src, relaxed.graph.edge_dst
    best = np.full(relaxed.graph.num_edges, NEVER, dtype=np.int64)
    for a in range(relaxed.num_classes):
        before = np.minimum(times.head_ns[src, a] + relaxed.time_ns[src, a], NEVER)
        for b in range(relaxed.num_classes):
            after = np.minimum(times.tail_ns[dst, b] + relaxed.time_ns[dst, b], NEVER)
            best = np.minimum(best, before + relaxed.delay_ns[:, a, b] + after)
    return best


def _whole_ns(
    relaxed: Relaxed, label: Int64[np.ndarray, " ops"], count: int
) -> Int64[np.ndarray, "components classes"]:
    """The time of a whole component on one device of a class; `NEVER` if it is not allowed or does not fit."""
    work, held, forbidden = (np.zeros((count, relaxed.num_classes), dtype=np.int64) for _ in range(3))
    np.add.at(work, label, np.where(relaxed.time_ns < NEVER, relaxed.time_ns, 0))
    np.add.at(held, label, relaxed.held_bytes[:, None])
    np.add.at(forbidden, label, relaxed.time_ns >= NEVER)
    possible = (forbidden == 0) & (held <= relaxed.memory_bytes)
    return np.where(possible, -(-work // relaxed.streams), NEVER)


class Window(NamedTuple):
    """The ops that start at `head_ns` or later and have at least `tail_ns` of the step left after them."""

    head_ns: int
    tail_ns: int
    ops: Bool[np.ndarray, " ops"]


def best_window(
    head_ns: Int64[np.ndarray, " ops"], tail_ns: Int64[np.ndarray, " ops"], price: Float[np.ndarray, " ops"]
) -> Window:
    """The window with the largest head + sum of prices + tail, for heads among `MAX_HEADS` quantiles and every tail."""
    starts = np.unique(head_ns)
    if len(starts) > MAX_HEADS:
        starts = starts[np.linspace(0, len(starts) - 1, MAX_HEADS).astype(np.int64)]
    order = np.argsort(-tail_ns, kind="stable")
    heads, tails, prices = head_ns[order], tail_ns[order], price[order]
    best, limits = -1.0, (0, 0)
    for start in starts.tolist():
        inside = heads >= start
        length = start + tails[inside] + np.cumsum(prices[inside])
        last = int(length.argmax())
        if length[last] > best:
            best, limits = float(length[last]), (start, int(tails[inside][last]))
    return Window(*limits, (head_ns >= limits[0]) & (tail_ns >= limits[1]))
