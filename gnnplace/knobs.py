"""Checks of knobs: each raises a ValueError with the knob, the value and the rule.

`place` is the prefix of the knob's dotted name.

All knobs are finite. A knob that takes memory or time before anything is printed has a largest value, far above what is
useful.
"""

from __future__ import annotations

import math

MOST_WIDTH = 2**14  # of a layer
MOST_LAYERS = 1000  # of a network: each is a module with weights
MOST_OF_A_STEP = 10**6  # samples, groups, rounds: they are in memory at once
MOST_SEED = 2**63 - 1
MOST = 2**31 - 1  # of whole numbers that count steps in sequence


def at_least(low: int, place: str, **knobs: int | float) -> None:
    """Raises ValueError unless every knob is `low` or more; whole numbers are at most `MOST`."""
    for knob, value in knobs.items():
        _check_finite(place, knob, value)
        if value < low:
            raise ValueError(f"{place}{knob}: {value} is below {low}")
        if isinstance(value, int) and value > MOST:
            raise ValueError(f"{place}{knob}: {value} is above {MOST}")


def between(low: int, high: int, place: str, **knobs: int) -> None:
    """Raises ValueError unless every knob is in [low, high]."""
    for knob, value in knobs.items():
        if not low <= value <= high:
            raise ValueError(f"{place}{knob}: {value} is not between {low} and {high}")


def above(low: int, place: str, **knobs: int | float) -> None:
    """Raises ValueError unless every knob is more than `low`."""
    for knob, value in knobs.items():
        _check_finite(place, knob, value)
        if value <= low:
            raise ValueError(f"{place}{knob}: {value} is not above {low}")


def fraction(place: str, **knobs: int | float) -> None:
    """Raises ValueError unless every knob is at least 0 and below 1."""
    for knob, value in knobs.items():
        if not 0 <= value < 1:
            raise ValueError(f"{place}{knob}: {value} is not at least 0 and below 1")


def finite(place: str, **knobs: float) -> None:
    """Raises ValueError for a knob that is infinite or not a number."""
    for knob, value in knobs.items():
        _check_finite(place, knob, value)


def _check_finite(place: str, knob: str, value: int | float) -> None:
    if not math.isfinite(value):
        raise ValueError(f"{place}{knob}: {value} is not finite")
