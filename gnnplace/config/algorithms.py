"""The knobs of the learning algorithms: `algorithm.kind` chooses one, as `policy.kind` chooses a policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnnplace.knobs import MOST_OF_A_STEP, above, at_least, between

Decisions = Literal["sum", "mean"]


@dataclass(frozen=True)
class ReinforceConfig:
    """The policy gradient of each update's own samples (Williams 1992): one step of the optimiser an update.

    Args:
        kind: names this algorithm
        decisions: "mean" divides a problem's loss by its decisions, so that problems of 24 and of 990 decisions weigh
            alike; "sum" is the paper's
        self_imitation: weight of the nats of the best own sample of a problem so far at the last update, at least 0; it
            grows linearly from 0; 0 = none
    """

    kind: Literal["reinforce"] = "reinforce"
    decisions: Decisions = "mean"
    self_imitation: float = 0.0

    def __post_init__(self) -> None:
        at_least(0, "algorithm.", self_imitation=self.self_imitation)

    @property
    def minibatches(self) -> int:
        """All of an update's samples are one."""
        return 1

    @property
    def steps(self) -> int:
        """Steps of the optimiser in an update."""
        return 1


@dataclass(frozen=True)
class PpoConfig:
    """Proximal policy optimisation (Schulman et al. 2017): several clipped steps on each update's samples.

    Args:
        kind: names this algorithm
        decisions: as for "reinforce"; it also weighs the ratios where they are of decisions
        self_imitation: as for "reinforce"
        epochs: how often an update learns from its samples
        minibatches: into how many parts of its samples an epoch is divided, one step of the optimiser each; a part cuts
            no grouping
        ratio: probabilities now over those when sampled, of each "decision" or of the whole "sample"
        clip: how far a ratio may be from 1 before its gradient ends, above 0
        value: weight of the critic's squared error, at least 0. It matters where a critic shares weights with its
            policy; GO's has its own, which Adam moves alike under every weight
    """

    kind: Literal["ppo"] = "ppo"
    decisions: Decisions = "mean"
    self_imitation: float = 0.0
    epochs: int = 4
    minibatches: int = 1
    ratio: Literal["decision", "sample"] = "decision"
    clip: float = 0.2
    value: float = 0.5

    def __post_init__(self) -> None:
        between(1, MOST_OF_A_STEP, "algorithm.", epochs=self.epochs, minibatches=self.minibatches)
        at_least(0, "algorithm.", self_imitation=self.self_imitation, value=self.value)
        above(0, "algorithm.", clip=self.clip)

    @property
    def steps(self) -> int:
        """Steps of the optimiser in an update."""
        return self.epochs * self.minibatches


AlgorithmConfig = ReinforceConfig | PpoConfig
ALGORITHMS: dict[str, type[AlgorithmConfig]] = {"reinforce": ReinforceConfig, "ppo": PpoConfig}
