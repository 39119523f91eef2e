"""Checks of knobs: each is a ValueError that names the knob, the value and the rule; `place` is where the knob stands in the tree."""

from __future__ import annotations

MOST_SEED = 2**63 - 1


def at_least(low: int, place: str, **knobs: int | float) -> None:
    """Raises ValueError unless every knob is `low` or more."""
    for knob, value in knobs.items():
        if not value >= low:
            raise ValueError(f"{place}{knob}: {value} is below {low}")


def at_most(high: int, place: str, **knobs: int | float) -> None:
    """Raises ValueError unless every knob is `high` or less."""
    for knob, value in knobs.items():
        if not value <= high:
            raise ValueError(f"{place}{knob}: {value} is above {high}")


def above(low: int, place: str, **knobs: int | float) -> None:
    """Raises ValueError unless every knob is more than `low`."""
    for knob, value in knobs.items():
        if not value > low:
            raise ValueError(f"{place}{knob}: {value} is not above {low}")


def fraction(place: str, **knobs: int | float) -> None:
    """Raises ValueError unless every knob is at least 0 and below 1."""
    for knob, value in knobs.items():
        if not 0 <= value < 1:
            raise ValueError(f"{place}{knob}: {value} is not at least 0 and below 1")
