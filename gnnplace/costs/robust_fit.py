"""A robust fit of the positive parameters of a model of times, on which outliers have little influence."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

SOFT = 0.01  # smaller relative errors count by their square, larger ones linearly
SMALLEST, LARGEST = 1e-9, 1e9  # bounds of a parameter, as multiples of its start


class Fit(NamedTuple):
    """The fitted parameters, and the weighted mean error of the logarithm, which is about the relative error."""

    parameters: Float[np.ndarray, " parameters"]
    error: float


def fit(
    model: Callable[[Float[np.ndarray, " parameters"]], Float[np.ndarray, " times"]],
    start: Float[np.ndarray, " parameters"],
    times: Float[np.ndarray, " times"],
    weight: Float[np.ndarray, " times"],
) -> Fit:
    """Minimises the weighted sum of `|log(model / time)|`, smoothed near 0. `start` and `times` must be positive.

    As with a median, the size of an outlier doesn't matter.
    """
    from scipy.optimize import least_squares  # takes half a second, which only fits should cost

    def error(shares: Float[np.ndarray, " parameters"]) -> Float[np.ndarray, " times"]:
        return np.log(model(shares * start) / times)

    def loss(squares: Float[np.ndarray, " times"]) -> Float[np.ndarray, "three times"]:
        root = np.sqrt(1 + squares)
        return share * np.stack([2 * (root - 1), 1 / root, -0.5 / root**3])  # value and two derivatives, for scipy

    share = weight / weight.sum()
    optimum = least_squares(error, np.ones(len(start)), loss=loss, f_scale=SOFT, bounds=(SMALLEST, LARGEST))
    return Fit(optimum.x * start, float(share @ np.abs(error(optimum.x))))
