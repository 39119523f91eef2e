"""What a policy promises: it computes logits and asks; a tape answers; every step proposes full placements.

One episode: `state = reset(problem, samples)`, then `step` until the state is None. No gradient crosses from
placements to results: policies learn from the log-probabilities that the tape keeps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from gnnplace.moves.ranking import Ranking
from gnnplace.placement import RULES, Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, StepResult

State = TypeVar("State")
Asked = TypeVar("Asked", contravariant=True)  # a state that is read alone


@runtime_checkable
class Choose(Protocol):
    """Answers questions: an option for each of `leading x shape`, where `leading` divides the number of samples.

    A choice whose leading axis is smaller than the number of samples is shared: sample j uses row
    `j // (samples / leading)`.
    """

    def __call__(
        self, name: str, logits: Float[Tensor, "leading *shape options"], allowed: Bool[Tensor, "..."] | None = None
    ) -> Int[Tensor, "leading *shape"]: ...

    def given(self, name: str) -> Int[Tensor, "leading *shape"] | None: ...


@runtime_checkable
class Policy(Protocol[State]):
    """A learnable proposer, an `nn.Module`. The state is a NamedTuple of detached tensors and of the problem's
    constants.

    Its tensors, like those of the choices, are on the device of the policy's parameters, which may change after
    `reset`.
    """

    def reset(self, problem: Problem, samples: int) -> State: ...

    def step(
        self, state: State, choose: Choose, feedback: Sequence[StepResult] | None
    ) -> tuple[tuple[Placement, ...], State | None]:
        """`samples` placements, and the next state or None at the end;
        `feedback` is what the placements of the step before took.
        """
        ...

    # of every nn.Module
    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]: ...

    def eval(self) -> Any: ...


class Asks(NamedTuple):
    """What a policy reads of each step before the next (`feedback`), and which of its steps are worth something
    (`evaluates`).

    A policy says so in class attributes of these names; without them it reads nothing and its last step alone is
    evaluated.
    """

    feedback: Literal["none", "result", "timeline"] = "none"
    evaluates: Literal["every", "last"] = "last"


def asks(policy: object) -> Asks:
    """What a policy says that it asks for."""
    return Asks(**{name: getattr(policy, name) for name in Asks._fields if hasattr(policy, name)})


@runtime_checkable
class Critic(Protocol[Asked]):
    """A policy that also estimates the return of each state, for actor-critic learning."""

    def value(self, state: Asked) -> Float[Tensor, " samples"]: ...


@runtime_checkable
class ClampsFeatures(Protocol):
    """A policy that clamps features to their range in training;
    `widen_ranges` shows it the training problems before it learns.
    """

    def widen_ranges(self, problems: Sequence[Problem]) -> None: ...


@runtime_checkable
class Imitates(Protocol):
    """A policy that can say which choices would have made a given placement (as nearly as it can express it)."""

    def choices(self, problem: Problem, placement: Placement) -> Mapping[str, Int[Tensor, "1 *shape"]]: ...


@runtime_checkable
class Continues(Protocol):
    """A policy that improves placements, and is told the best one of a problem before each update that samples it."""

    def continue_from(self, problem: Problem, placement: Placement) -> None: ...


Starts = Callable[[Problem, Evaluator, np.random.Generator, int], Placement]
"""A placement that a search may start from: the fastest of random list
schedules, at most so many, or of 0 the fastest device alone.
"""


class Practice(NamedTuple):
    """What a phase of a policy's own learns from: problems' placements,
    evaluated; starts of searches; and all that it draws.
    """

    evaluate: Evaluator
    starts: Starts
    generator: np.random.Generator


@runtime_checkable
class Objective(Protocol):
    """A phase of learning that a policy brings. It comes before the policy learns from its own samples, and has an Adam
    of its own.

    `name` names it in metrics and descriptions, `updates` says how many updates it has (0: none), `lr` is their
    learning rate.
    """

    @property
    def name(self) -> str: ...

    @property
    def updates(self) -> int: ...

    @property
    def lr(self) -> float: ...

    def prepare(self, problems: Sequence[Problem], practice: Practice) -> None:
        """Called once before the first update of a run, even where the phase has none."""
        ...

    def loss(self, problem: Problem, practice: Practice) -> tuple[Float[Tensor, ""] | None, Mapping[str, float]]:
        """The loss of one problem in one update, None where it teaches nothing; and metrics of the problem.

        It draws its own samples.
        """
        ...


@runtime_checkable
class BringsPhases(Protocol):
    """A policy that learns otherwise, too; any other learns in the phases that all share: clusterings, a teacher's
    placements, its samples.

    `training` are the knobs under `training`, of which some may be such a policy's (`training.moves`).
    """

    def objectives(self, training: Any) -> Sequence[Objective]: ...


@runtime_checkable
class GuidesSearch(Protocol):
    """A policy that is used as the ranking of a search's moves (`baselines.improve`) in place of its own episodes."""

    def ranking(self) -> Ranking: ...


@runtime_checkable
class SharesGroupings(Protocol):
    """A policy that draws `groupings` groupings for its samples, and places each of them several times."""

    groupings: int


@runtime_checkable
class Renamed(Protocol):
    """A policy whose weights began with other names in older checkpoints:
    what they began with, and what they begin with today.
    """

    older_names: Mapping[str, str]


@runtime_checkable
class Groups(Protocol[Asked]):
    """A policy whose first decision, "group", can be learned from a clustering of the graph, without any placement.

    `Tape.of(policy.grouping_target(problem), 1)` answers `policy.group(policy.reset(problem, 1), tape)`; its
    log-probability is the loss.
    """

    def reset(self, problem: Problem, samples: int) -> Any: ...

    def grouping_target(self, problem: Problem) -> Mapping[str, Int[Tensor, "1 units"]]: ...

    def group(self, state: Asked, choose: Choose) -> Int[Tensor, "leading units"]: ...

    def grouping_parameters(self) -> Iterator[nn.Parameter]: ...


class PolicyShape(NamedTuple):
    """The sizes of a policy's weights that come from its training problems:
    devices and groups (0: any number), op kinds (none: any).
    """

    devices: int = 0
    kinds: tuple[str, ...] = ()
    groups: int = 0


class PolicyConfig(ABC):
    """The knobs of a policy, and how it is built from them. Subclasses are frozen dataclasses, each field with a
    default.

    `kind` names the policy in configurations, on the command line, in checkpoints and in tables. The docstring of a
    subclass explains each knob under `Args:`; `gnnplace train --knobs` prints it. Raises ValueError for knobs that are
    out of range.
    """

    kind: str
    schedule: Schedule

    @property
    def encoders(self) -> Mapping[str, Mapping[str, str]]:
        """The policy's encoders by name, each with the knobs that make it up (all with the same knobs, none where there
        is no choice).

        Empty for a policy that embeds no ops. Most policies have `encoders.encoder.ENCODERS`.
        """
        return {}

    @property
    def encodes_with(self) -> str | None:
        """The encoder, as placement files and tables name it: its name in
        `encoders`, or what its knobs say; None without one.
        """
        chosen = {knob: str(getattr(self, knob)) for knobs in self.encoders.values() for knob in knobs}
        return (
            next((name for name, knobs in self.encoders.items() if knobs == chosen), "+".join(chosen.values())) or None
        )

    @property
    def proposes(self) -> Schedule:
        """The schedule of the policy's placements: a rule, or "given" where it proposes priorities."""
        return self.schedule

    @classmethod
    def migrated(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """The knobs of an older checkpoint as they are named today.

        Raises ValueError where its weights fit no policy of today.
        """
        return document

    def shape(self, problems: Sequence[Problem]) -> PolicyShape:
        """What the policy's weights take from these problems.

        Raises ValueError where one policy can't place them all.
        """
        return PolicyShape()

    @abstractmethod
    def build(self, shape: PolicyShape, groupings: int, seed: int) -> nn.Module:
        """A `Policy` with weights from torch's generator.

        A policy that groups ops draws `groupings` groupings a step.
        """

    def require_rule(self) -> None:
        """Raises ValueError where `schedule` is no rule: whether a policy
        proposes priorities is not for that knob to say (`proposes`).
        """
        if self.schedule == "given":
            raise ValueError(
                f"policy.schedule: 'given' needs priorities, and this knob names a rule; choose {', '.join(RULES)}"
            )
