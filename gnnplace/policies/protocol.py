"""The protocol of a policy: it computes logits and asks a tape for decisions; every step proposes full placements.

One episode: `state = reset(problem, samples)`, then `step` until the state is None. No gradient crosses from placements
to results: policies learn from the log-probabilities that the tape keeps.
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
Asked = TypeVar("Asked", contravariant=True)  # a state that is only read


@runtime_checkable
class Choose(Protocol):
    """Answers a question with an option for each entry of `leading x shape`; `leading` divides the number of samples.

    A choice whose leading axis is smaller than the number of samples is shared: sample j uses row
    `j // (samples / leading)`.
    """

    def __call__(
        self, name: str, logits: Float[Tensor, "leading *shape options"], allowed: Bool[Tensor, "..."] | None = None
    ) -> Int[Tensor, "leading *shape"]: ...

    def given(self, name: str) -> Int[Tensor, "leading *shape"] | None: ...


@runtime_checkable
class Policy(Protocol[State]):
    """A learnable proposer of placements, an `nn.Module`.

    The state is a NamedTuple of detached tensors and of the problem's constants.

    Its tensors, like those of the choices, are on the device of the policy's parameters, which may change after
    `reset`.
    """

    def reset(self, problem: Problem, samples: int) -> State: ...

    def step(
        self, state: State, choose: Choose, feedback: Sequence[StepResult] | None
    ) -> tuple[tuple[Placement, ...], State | None]:
        """`samples` placements, and the next state, or None at the end.

        `feedback` are the results of the placements of the step before.
        """
        ...

    # of every nn.Module
    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]: ...

    def named_children(self) -> Iterator[tuple[str, nn.Module]]: ...

    def eval(self) -> Any: ...


class Asks(NamedTuple):
    """What a policy reads of each step (`feedback`), and which steps are evaluated for a reward (`evaluates`).

    The first `looks` steps only look: they decide nothing, and propose any number of placements, which are of no sample
    (a schedule that the policy observes). A policy says so in attributes of these names. Without them it reads nothing,
    and its last step alone is evaluated.
    """

    feedback: Literal["none", "result", "timeline"] = "none"
    evaluates: Literal["every", "last"] = "last"
    looks: int = 0


def asks(policy: object) -> Asks:
    """What a policy asks for."""
    return Asks(**{name: getattr(policy, name) for name in Asks._fields if hasattr(policy, name)})


@runtime_checkable
class Critic(Protocol[Asked]):
    """A policy that also estimates the return of each state, for actor-critic learning."""

    def value(self, state: Asked) -> Float[Tensor, " samples"]: ...


@runtime_checkable
class ClampsFeatures(Protocol):
    """A policy that clamps features to their range in training.

    `widen_ranges` gets the training problems before the policy learns.
    """

    def widen_ranges(self, problems: Sequence[Problem]) -> None: ...


@runtime_checkable
class Imitates(Protocol):
    """A policy that knows which choices make a given placement, as nearly as it can express it."""

    def choices(self, problem: Problem, placement: Placement) -> Mapping[str, Int[Tensor, "1 *shape"]]: ...


@runtime_checkable
class Continues(Protocol):
    """A policy that starts from the best placement so far, which it gets before each update of that problem."""

    def continue_from(self, problem: Problem, placement: Placement) -> None: ...


Starts = Callable[[Problem, Evaluator, np.random.Generator, int], Placement]
"""The start of a search: the fastest of at most so many random list schedules; with 0 the fastest device alone."""


class Practice(NamedTuple):
    """What a policy's own phase learns from: an evaluator, starts of searches, and the generator of all its draws."""

    evaluate: Evaluator
    starts: Starts
    generator: np.random.Generator


@runtime_checkable
class Objective(Protocol):
    """A phase of learning that a policy brings, with an Adam of its own, before the policy learns from its samples.

    `name` is its name in metrics and descriptions, `updates` its number of updates (0: none), `lr` their learning rate.
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
        """The loss of one problem in one update, None if it teaches nothing; and metrics of the problem.

        The phase draws its own samples.
        """
        ...


@runtime_checkable
class BringsPhases(Protocol):
    """A policy with phases of learning of its own.

    Every policy learns in the shared phases: from clusterings, a teacher's placements, and its samples.

    `training` are the knobs of that name; some may belong to such a policy (`training.moves`).
    """

    def objectives(self, training: Any) -> Sequence[Objective]: ...


@runtime_checkable
class GuidesSearch(Protocol):
    """A policy that ranks the moves of a search (`baselines.improve`) instead of running its own episodes."""

    def ranking(self) -> Ranking: ...


@runtime_checkable
class SharesGroupings(Protocol):
    """A policy that draws `groupings` groupings for its samples, and places each of them several times.

    `learns_groups`: whether it learns them from its samples; others are random or fixed, or follow from weights that
    a clustering alone teaches (then the policy has an attribute `teaches_groups`, which is True).
    """

    groupings: int

    @property
    def learns_groups(self) -> bool: ...


@runtime_checkable
class Renamed(Protocol):
    """A policy whose weights have other names in older checkpoints: the old prefixes, and today's."""

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
    """The sizes of a policy's weights that depend on its training problems.

    0 devices or groups: any number. No kinds of op: any.
    """

    devices: int = 0
    kinds: tuple[str, ...] = ()
    groups: int = 0


class PolicyConfig(ABC):
    """The knobs of a policy, and how it is built from them.

    Subclasses are frozen dataclasses, each field with a default.

    `kind` names the policy in configurations, on the command line, in checkpoints and in tables. The docstring of a
    subclass explains each knob under `Args:`; `gnnplace train --knobs` prints it. Raises ValueError for knobs that are
    out of range.
    """

    kind: str
    schedule: Schedule

    @property
    def encoders(self) -> Mapping[str, Mapping[str, str]]:
        """The policy's encoders by name, each with the values of the knobs that choose it.

        All encoders set the same knobs, or none if there is no choice.

        Empty for a policy that embeds no ops. Most policies have `encoders.encoder.ENCODERS`.
        """
        return {}

    @property
    def encodes_with(self) -> str | None:
        """The encoder's name in placement files and tables.

        It is its name in `encoders`, else the values of its knobs; None without an encoder.
        """
        chosen = {knob: str(getattr(self, knob)) for knobs in self.encoders.values() for knob in knobs}
        return (
            next((name for name, knobs in self.encoders.items() if knobs == chosen), "+".join(chosen.values())) or None
        )

    @property
    def proposes(self) -> Schedule:
        """The schedule of the policy's placements: a rule, or "given" if it proposes priorities."""
        return self.schedule

    @classmethod
    def migrated(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """The knobs of an older checkpoint under today's names.

        Raises ValueError if its weights fit no policy of today.
        """
        return document

    def shape(self, problems: Sequence[Problem]) -> PolicyShape:
        """The sizes that the policy's weights take from these problems.

        Raises ValueError if one policy can't place them all.
        """
        return PolicyShape()

    @abstractmethod
    def build(self, shape: PolicyShape, groupings: int, seed: int) -> nn.Module:
        """A `Policy` with weights from torch's generator.

        A policy that groups ops draws `groupings` groupings a step.
        """

    def require_rule(self) -> None:
        """Raises ValueError if `schedule` is no rule.

        The knob doesn't decide whether a policy proposes priorities; `proposes` does.
        """
        if self.schedule not in RULES:
            raise ValueError(
                f"policy.schedule: {self.schedule!r} needs priorities, and this knob names a rule; choose "
                f"{', '.join(RULES)}"
            )
