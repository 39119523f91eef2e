"""The outcomes of measuring a placed step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["ok", "out_of_memory", "timeout", "crash", "wrong_output", "unsupported"]


class MeasurementError(Exception):
    """A failed measurement: its outcome (anything but `ok`) and a one-line reason."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        self.outcome = outcome
        self.reason = " ".join(reason.split())
        super().__init__(f"{outcome}: {self.reason}")

    def __reduce__(self) -> tuple[type[MeasurementError], tuple[Outcome, str]]:
        return MeasurementError, (self.outcome, self.reason)


@dataclass(frozen=True)
class Difference:
    """The deviation of a placed step's losses and updated variables from those of the unplaced step.

    `largest` is the largest difference of an element, relative to the largest element of its variable (or to the
    loss); `worst` is the name of that variable or loss.
    """

    largest: float
    worst: str
    variables: int
    steps: int
    reference: str  # description of the unplaced step
