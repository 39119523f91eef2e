"""The guide of a placement: moves are drawn where its step waits, or where its memory overflows."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.moves.drawing import Guide
from gnnplace.moves.neighbourhood import Devices, Neighbourhood

NO_GUIDE: Guide = np.zeros(0)


def guide(
    around: Neighbourhood,
    device: Devices,
    peak_bytes: Int64[np.ndarray, " devices"] | None,
    waited_ns: Int64[np.ndarray, " ops"] | Float[np.ndarray, " ops"] | None,
) -> Guide:
    """Draws units by how long the step waits for their ops or, where a memory overflows, units on its device by their bytes.

    `peak_bytes` is what devices hold at most and `waited_ns` the time of each op on the critical chain, None where it is unknown.
    """
    if peak_bytes is not None and (over := peak_bytes > around.terrain.memory_bytes).any():
        weight = np.where(over[device], around.bytes, 0)
    elif waited_ns is not None:
        weight = np.bincount(around.closure.unit, weights=waited_ns, minlength=len(device))
    else:
        return NO_GUIDE
    return np.cumsum(weight / weight.sum()) if weight.any() else NO_GUIDE
