"""What measuring a placed step can come to: exactly one outcome, with its reason, and the figures of an `ok` one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Outcome = Literal["ok", "out_of_memory", "timeout", "crash", "wrong_output", "unsupported"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


class MeasurementError(Exception):
    """A measurement that came to another outcome than `ok`, with its reason in one line."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(f"{outcome}: {reason}")
        self.outcome = outcome
        self.reason = " ".join(reason.split())

    def __reduce__(self) -> tuple[type[MeasurementError], tuple[Outcome, str]]:
        return MeasurementError, (self.outcome, self.reason)


@dataclass(frozen=True)
class Difference:
    """How far the losses and the updated variables of a placed step are from those of the unplaced one.

    `largest` is the largest difference of an element, relative to the largest element of its variable (or to the loss); `worst` says
    where.
    """

    largest: float
    worst: str
    variables: int
    steps: int
    reference: str  # what was compared with, in words
