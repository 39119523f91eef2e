"""The windows bound: ops that start at a or later and have at least b of the step left after them run between a and T - b.

So T >= a + load + b for every set {head >= a, tail >= b} (Fernandez and Bussell, 1973; Jackson, 1955, for one machine). Sorting finds the
best set among many at given prices; the load of that set is then bounded again, by the best prices for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64

MAX_HEADS = 256  # values of a that are tried: quantiles of the heads


class Window(NamedTuple):
    """The ops that start at `head_ns` or later and have at least `tail_ns` of the step left after them."""

    head_ns: int
    tail_ns: int
    ops: Bool[np.ndarray, " ops"]


def best_window(head_ns: Int64[np.ndarray, " ops"], tail_ns: Int64[np.ndarray, " ops"], price: Float[np.ndarray, " ops"]) -> Window:
    """The window with the largest head + sum of prices + tail, for heads among `MAX_HEADS` quantiles and every tail."""
    starts = np.unique(head_ns)
    if len(starts) > MAX_HEADS:
        starts = starts[np.linspace(0, len(starts) - 1, MAX_HEADS).astype(np.int64)]
    order = np.argsort(-tail_ns, kind="stable")
    heads, tails, prices = head_ns[order], tail_ns[order], price[order]
    best, found = -1.0, (0, 0)
    for start in starts.tolist():
        inside = heads >= start
        length = start + tails[inside] + np.cumsum(prices[inside])
        last = int(length.argmax())
        if length[last] > best:
            best, found = float(length[last]), (start, int(tails[inside][last]))
    return Window(*found, (head_ns >= found[0]) & (tail_ns >= found[1]))
