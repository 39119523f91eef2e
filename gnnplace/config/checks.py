"""Checks of knobs: each is a ValueError that names the knob, the value and the rule."""

from __future__ import annotations


def at_least(low: float, **knobs: float) -> None:
    for knob, value in knobs.items():
        if not value >= low:
            raise ValueError(f"{knob}: {value} is below {low}")


def above(low: float, **knobs: float) -> None:
    for knob, value in knobs.items():
        if not value > low:
            raise ValueError(f"{knob}: {value} is not above {low}")


def fraction(**knobs: float) -> None:
    for knob, value in knobs.items():
        if not 0 <= value < 1:
            raise ValueError(f"{knob}: {value} is not at least 0 and below 1")
