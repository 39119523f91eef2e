"""What the losses of all algorithms share: sums over steps, means over the samples that count, and the weight of a problem."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from gnnplace.config.algorithms import Decisions as Weighed
from gnnplace.policies.tape import Decisions, Tape


class EntropyBonus(NamedTuple):
    """What a nat of entropy is worth, and which decisions it is of (all where none is named)."""

    coefficient: float = 0.0
    names: tuple[str, ...] = ()

    def of(self, tape: Tape) -> Float[Tensor, "steps samples"] | float:
        """The bonus of each step."""
        return self.coefficient * tape.by_step(Decisions.entropy, self.names) if self.coefficient else 0.0


NO_BONUS = EntropyBonus()


def mean_gain(gain: Float[Tensor, "steps samples"], counts: Bool[Tensor, "steps samples"], number: int | None = None) -> Float[Tensor, ""]:
    """The sum over steps of the mean gain of the samples that count; 0 where none does. `number` is of the samples of all processes."""
    return (gain * counts).sum() / max(1, int(counts.any(0).sum()) if number is None else number)


def weight(decisions: Weighed, number: int) -> float:
    """What a problem's loss is multiplied by: under "mean" one over its decisions."""
    return 1.0 if decisions == "sum" else 1 / max(1, number)
