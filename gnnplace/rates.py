"""Exact quotients of the execution model: an amount at a rate takes whole nanoseconds, rounded up."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

NS_PER_S = 10**9


def duration_ns(amount: Int64[np.ndarray, "*shape"], per_second: int) -> Int64[np.ndarray, "*shape"]:
    """`ceil(amount * 10^9 / per_second)`, in integers (EXECUTION_MODEL.md, Inputs).

    Products exceed 64 bits, so each distinct amount is divided once with Python's integers.
    """
    distinct, index = np.unique(amount, return_inverse=True)
    quotients = [-(-value * NS_PER_S // per_second) for value in distinct.tolist()]
    return np.array(quotients, dtype=np.int64)[index].reshape(amount.shape)
