"""The policy protocol: a policy computes logits and asks; a tape answers; every step proposes full placements.

One episode: `state = reset(problem, samples)`, then `step` until the state is None. No gradient crosses from
placements to results: policies learn from the log-probabilities that the tape keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import StepResult

State = TypeVar("State")


@runtime_checkable
class Choose(Protocol):
    """Answers questions: an option for each of `leading x shape`, where `leading` divides the number of samples.

    A choice whose leading axis is smaller than the number of samples is shared: sample j uses row `j // (samples / leading)`.
    """

    def __call__(
        self, name: str, logits: Float[Tensor, "leading *shape options"], allowed: Bool[Tensor, "..."] | None = None
    ) -> Int[Tensor, "leading *shape"]: ...

    def given(self, name: str) -> Int[Tensor, "leading *shape"] | None: ...


@runtime_checkable
class Policy(Protocol[State]):
    """A learnable proposer. The state is a NamedTuple of detached tensors and of the problem's constants.

    Its tensors, as those of choices, are on the device of the policy's parameters, wherever the policy was when it met the problem.
    """

    def reset(self, problem: Problem, samples: int) -> State: ...

    def step(self, state: State, choose: Choose, feedback: Sequence[StepResult] | None) -> tuple[tuple[Placement, ...], State | None]:
        """`samples` placements, and the next state or None at the end; `feedback` is what the placements of the step before took."""
        ...


@runtime_checkable
class KeepsRanges(Protocol):
    """A policy that keeps what the features of its training problems range over; it is shown them before it learns."""

    def keep_ranges(self, problems: Sequence[Problem]) -> None: ...


@runtime_checkable
class Imitates(Protocol):
    """A policy that can say which choices would have made a given placement (as nearly as it can express it)."""

    def choices(self, problem: Problem, placement: Placement) -> Mapping[str, Int[Tensor, "1 *shape"]]: ...
