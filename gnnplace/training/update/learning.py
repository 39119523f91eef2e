"""The settings of a learner, their checks against a policy, and the minibatches of an update."""

from __future__ import annotations

from typing import NamedTuple

from gnnplace.config.algorithms import AlgorithmConfig, PpoConfig
from gnnplace.config.training import POLICY_PHASES, Phase, TrainingConfig
from gnnplace.policies.protocol import BringsPhases, Critic, Groups, Imitates, Objective, Policy, SharesGroupings, asks


class Learning(NamedTuple):
    """The settings of a learner: loop, algorithm, seed of all draws, and the phases that its policy brings."""

    training: TrainingConfig
    algorithm: AlgorithmConfig
    seed: int = 0
    objectives: tuple[Objective, ...] = ()

    def of(self, policy: Policy) -> Learning:
        """The settings for a policy, with the phases that it brings.

        Raises ValueError, naming the knob, if it can't learn so.
        """
        brought = tuple(policy.objectives(self.training)) if isinstance(policy, BringsPhases) else ()
        check(policy, self._replace(objectives=brought))
        return self._replace(objectives=brought)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases with updates: imitating clusterings, imitating a teacher, the policy's own, reinforcement."""
        training = self.training
        parts = [
            ("grouping", training.grouping.updates, training.grouping.lr),
            ("warm_start", training.warm_start.updates, training.warm_start.lr),
            *((objective.name, objective.updates, objective.lr) for objective in self.objectives),
            ("reinforcement", training.updates, training.optimizer.lr),
        ]
        phases, first = [], 0
        for name, updates, lr in parts:
            if updates:
                phases.append(Phase(name, first, first + updates, lr))
            first += updates
        return tuple(phases)

    @property
    def all_updates(self) -> int:
        return sum(phase.last - phase.first for phase in self.phases)


def check(policy: Policy, learning: Learning) -> None:
    """Raises ValueError, naming the knob, if a policy can't learn as a configuration says."""
    training = learning.training
    _check_groups(policy, training)
    _check_credit(policy, learning)
    check_minibatches(learning.algorithm.minibatches, training, isinstance(policy, SharesGroupings))
    if training.warm_start.updates and not isinstance(policy, Imitates):
        raise ValueError(
            f"training.warm_start.updates: {type(policy).__name__} cannot imitate a placement; set it to 0"
        )
    if training.warm_start.updates and asks(policy).looks:
        raise ValueError(
            f"training.warm_start.updates: {type(policy).__name__} observes a base first, which imitating a placement "
            "does not evaluate; set it to 0"
        )
    _check_rounds(policy, learning)
    brought = [objective.name for objective in learning.objectives]
    for name in POLICY_PHASES:
        if getattr(training, name).updates and name not in brought:
            raise ValueError(f"training.{name}.updates: {type(policy).__name__} has no such phase; set it to 0")


def _check_rounds(policy: Policy, learning: Learning) -> None:
    """Raises ValueError if samples would be scored where they do not see what all samples of an update found."""
    needs = asks(policy)
    for knob, off in (("self_imitation", 0), ("minibatches", 1)):
        if needs.looks and needs.evaluates == "every" and getattr(learning.algorithm, knob) > off:
            raise ValueError(
                f"algorithm.{knob}: later rounds of this {type(policy).__name__} observe the best of all samples, "
                f"which some of them alone don't show; set it to {off}"
            )


def _check_groups(policy: Policy, training: TrainingConfig) -> None:
    """Raises ValueError if groups are to be learned that can't be."""
    name = type(policy).__name__
    fixed = isinstance(policy, SharesGroupings) and not getattr(policy, "teaches_groups", policy.learns_groups)
    learned = isinstance(policy, SharesGroupings) and policy.learns_groups
    if training.grouping.updates and not isinstance(policy, Groups):
        raise ValueError(f"training.grouping.updates: {name} has no groups to pre-train; set it to 0")
    if training.grouping.updates and fixed:
        raise ValueError(f"training.grouping.updates: the groups of this {name} are fixed; set it to 0")
    alone = training.updates and training.credit.baseline == "leave-one-out" and training.groupings == 1
    if alone and learned:
        raise ValueError(
            "training.groupings: leave-one-out compares a grouping with others, and 1 has none, so that nothing would "
            f"be learned of groups ({name}); choose 2 or more, or training.credit.baseline moving-average"
        )


def _check_credit(policy: Policy, learning: Learning) -> None:
    """Raises ValueError if the policy does not give what returns are made of or compared with."""
    credit, name = learning.training.credit, type(policy).__name__
    taught = isinstance(policy, Critic) and isinstance(learning.algorithm, PpoConfig)
    if credit.baseline == "critic" and not taught:
        raise ValueError(
            "training.credit.baseline: 'critic' needs a policy with a critic, and algorithm.kind ppo, which teaches "
            f"it; {name} under {learning.algorithm.kind!r} is not that"
        )
    if credit.returns == "improvement" and asks(policy).evaluates != "every":
        raise ValueError(
            "training.credit.returns: 'improvement' is of policies that have every step evaluated, and "
            f"{name} only has its last; choose 'terminal'"
        )


def minibatch(turn: int, parts: int, samples: int) -> slice:
    """The samples of pass `turn` over an epoch of `parts` parts, equal up to one sample.

    Samples that share a grouping stand side by side (`protocol.Choose`), so a part is of whole groupings, or of samples
    of one.
    """
    part = turn % parts
    return slice(part * samples // parts, (part + 1) * samples // parts)


def check_minibatches(parts: int, training: TrainingConfig, shared: bool) -> None:
    """Raises ValueError if there are more parts than samples, or a part would cut a grouping that is `shared`."""
    if parts > training.samples:
        raise ValueError(f"algorithm.minibatches: {parts} parts of {training.samples} samples")
    placements = training.placements
    if (
        shared
        and training.groupings > 1
        and any(_cuts(minibatch(turn, parts, training.samples), placements) for turn in range(parts))
    ):
        raise ValueError(
            f"algorithm.minibatches: {parts} parts of {training.groupings} groupings with {placements} placements each "
            "would cut a grouping; "
            f"choose a number that divides the groupings, or a multiple of them"
        )


def _cuts(part: slice, placements: int) -> bool:
    """Whether a part has samples of several groupings, and not all samples of placements."""
    inside = part.start // placements == (part.stop - 1) // placements
    return not inside and bool(part.start % placements or part.stop % placements)
