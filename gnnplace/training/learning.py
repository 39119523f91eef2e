"""What a learner is told, and whether a policy can learn so."""

from __future__ import annotations

from typing import Any, NamedTuple

from gnnplace.config.algorithms import AlgorithmConfig, PpoConfig
from gnnplace.config.training import TrainingConfig
from gnnplace.policies.improver.policy import RanksMoves
from gnnplace.policies.protocol import Critic, Groups, Imitates, SharesGroupings, asks
from gnnplace.training import minibatches


class Learning(NamedTuple):
    """What a learner is told: the loop, the algorithm and the seed of all draws."""

    training: TrainingConfig
    algorithm: AlgorithmConfig
    seed: int = 0


def check(policy: Any, learning: Learning) -> None:
    """Raises ValueError, naming the knob, where a policy can't imitate what a configuration tells it to."""
    training = learning.training
    if training.grouping.updates and not isinstance(policy, Groups):
        raise ValueError(f"training.grouping.updates: {type(policy).__name__} has no groups to pre-train; set it to 0")
    if training.credit.baseline == "critic" and not (isinstance(policy, Critic) and isinstance(learning.algorithm, PpoConfig)):
        raise ValueError(
            f"training.credit.baseline: 'critic' needs a policy with a critic, and algorithm.kind ppo, which teaches it; "
            f"{type(policy).__name__} under {learning.algorithm.kind!r} is not that"
        )
    if training.credit.returns == "improvement" and asks(policy).evaluates != "every":
        raise ValueError(
            f"training.credit.returns: 'improvement' is of policies that have every step evaluated, and {type(policy).__name__} only has "
            f"its last; choose 'terminal'"
        )
    minibatches.check(learning.algorithm.minibatches, training, isinstance(policy, SharesGroupings))
    if training.warm_start.updates and not isinstance(policy, Imitates):
        raise ValueError(f"training.warm_start.updates: {type(policy).__name__} cannot imitate a placement; set it to 0")
    if training.moves.updates and not isinstance(policy, RanksMoves):
        raise ValueError(f"training.moves.updates: {type(policy).__name__} chooses among no moves; set it to 0")
