"""What a policy promises: it computes logits and asks; a tape answers; every step proposes full placements.

One episode: `state = reset(problem, samples)`, then `step` until the state is None. No gradient crosses from
placements to results: policies learn from the log-probabilities that the tape keeps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from gnnplace.placement import RULES, Placement, Schedule
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
    """A learnable proposer, an `nn.Module`. The state is a NamedTuple of detached tensors and of the problem's constants.

    Its tensors, like those of the choices, are on the device of the policy's parameters, which may change after `reset`.
    """

    def reset(self, problem: Problem, samples: int) -> State: ...

    def step(self, state: State, choose: Choose, feedback: Sequence[StepResult] | None) -> tuple[tuple[Placement, ...], State | None]:
        """`samples` placements, and the next state or None at the end; `feedback` is what the placements of the step before took."""
        ...


@runtime_checkable
class ClampsFeatures(Protocol):
    """A policy that clamps features to their range in training; `widen_ranges` shows it the training problems before it learns."""

    def widen_ranges(self, problems: Sequence[Problem]) -> None: ...


@runtime_checkable
class Imitates(Protocol):
    """A policy that can say which choices would have made a given placement (as nearly as it can express it)."""

    def choices(self, problem: Problem, placement: Placement) -> Mapping[str, Int[Tensor, "1 *shape"]]: ...


class PolicyShape(NamedTuple):
    """The sizes of a policy's weights that come from its training problems: devices (0: any number) and op kinds (none: any)."""

    devices: int = 0
    kinds: tuple[str, ...] = ()


class PolicyConfig(ABC):
    """The knobs of a policy, and how it is built from them. Subclasses are frozen dataclasses, each field with a default.

    `kind` names the policy in configurations, on the command line, in checkpoints and in tables. The docstring of a subclass
    explains each knob under `Args:`; `gnnplace train --knobs` prints it. Raises ValueError for knobs that are out of range.
    """

    kind: str
    schedule: Schedule

    @property
    def encodes_with(self) -> str | None:
        """The encoder, as placement files and tables name it; None for a policy without one."""
        return None

    def shape(self, problems: Sequence[Problem]) -> PolicyShape:
        """What the policy's weights take from these problems. Raises ValueError where one policy can't place them all."""
        return PolicyShape()

    @abstractmethod
    def build(self, shape: PolicyShape, groupings: int, seed: int) -> nn.Module:
        """A `Policy` with weights from torch's generator. A policy that groups ops draws `groupings` groupings a step."""

    def require_rule(self) -> None:
        """Raises ValueError where ops would run by priorities: a policy that proposes none can't be told to."""
        if self.schedule == "given":
            raise ValueError(f"policy.schedule: 'given' needs priorities, which this policy doesn't propose; choose {', '.join(RULES)}")
