"""The knobs of training on real step times."""

from __future__ import annotations

from dataclasses import dataclass

from gnnplace.choices import ProtocolName
from gnnplace.knobs import above


@dataclass(frozen=True)
class MeasuredConfig:
    """How each placement is timed.

    Args:
        protocol: "paper" is ten steps and the median of the last five; "steady" warms up until two windows agree, then 30 steps
        limit_s: seconds that a placement may take, start and steps together, above 0; one that takes longer is infeasible
    """

    protocol: ProtocolName = "paper"
    limit_s: float = 120.0

    def __post_init__(self) -> None:
        above(0, "measured.", limit_s=self.limit_s)
