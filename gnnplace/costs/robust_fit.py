"""Positive parameters of a model of times, fitted so that a part of the times may be far off."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

SOFT = 0.01  # errors below this share count by their square, those above by their size
SMALLEST, LARGEST = 1e-9, 1e9  # of a parameter, in parts of where it started


class Fit(NamedTuple):
    """The parameters found and the weighted mean error, about that of the times as a share."""

    parameters: Float[np.ndarray, " parameters"]
    error: float


def fit(
    model: Callable[[Float[np.ndarray, " parameters"]], Float[np.ndarray, " times"]],
    start: Float[np.ndarray, " parameters"],
    times: Float[np.ndarray, " times"],
    weight: Float[np.ndarray, " times"],
) -> Fit:
    """Parameters that make the weighted sum of `|log(model / time)|` small, from `start` (all of them, and all times, above 0).

    A least absolute error, smooth near 0: half of the weight decides, and how far off an outlier is doesn't matter.
    """
    from scipy.optimize import least_squares  # half a second, which the commands that fit nothing needn't wait

    def error(shares: Float[np.ndarray, " parameters"]) -> Float[np.ndarray, " times"]:
        return np.log(model(shares * start) / times)

    def loss(squares: Float[np.ndarray, " times"]) -> Float[np.ndarray, "three times"]:
        root = np.sqrt(1 + squares)
        return part * np.stack([2 * (root - 1), 1 / root, -0.5 / root**3])  # value and two derivatives, as scipy asks

    part = weight / weight.sum()
    found = least_squares(error, np.ones(len(start)), loss=loss, f_scale=SOFT, bounds=(SMALLEST, LARGEST))
    return Fit(found.x * start, float(part @ np.abs(error(found.x))))
