"""The knobs of training: optimiser, reward, advantage, exploration, warm start and the loop around them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gnnplace.knobs import above, at_least, fraction

RewardKind = Literal["sqrt", "log-ratio"]
AdvantageKind = Literal["moving-average", "leave-one-out"]
TrainingDevice = Literal["cpu", "gpu"]


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam with gradients clipped by their norm.

    Args:
        lr: learning rate of the first update, above 0
        lr_decay: share of it that is gone at the last update, linear in between, in [0, 1); 0 = a fixed rate
        beta1: decay of the mean of gradients, in [0, 1)
        beta2: decay of the mean of squared gradients, in [0, 1)
        eps: added to the denominator, above 0
        clip_norm: the largest gradient norm over all parameters, above 0
    """

    lr: float = 1e-3
    lr_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        above(0, "training.optimizer.", lr=self.lr, eps=self.eps, clip_norm=self.clip_norm)
        fraction("training.optimizer.", lr_decay=self.lr_decay, beta1=self.beta1, beta2=self.beta2)


@dataclass(frozen=True)
class RewardConfig:
    """What a step time is worth to the policy.

    Args:
        kind: "sqrt" is -sqrt(seconds), -10 where infeasible; "log-ratio" is -log(step time / best single device) - overflow * excess memory
        overflow: reward lost under "log-ratio" where a device's memory is too small by its own size, at least 0
    """

    kind: RewardKind = "log-ratio"
    overflow: float = 5.0

    def __post_init__(self) -> None:
        at_least(0, "training.reward.", overflow=self.overflow)


@dataclass(frozen=True)
class AdvantageConfig:
    """What a reward is compared with.

    Args:
        kind: "moving-average" of past rewards (one a problem), or "leave-one-out": the mean of the other samples
        decay: weight of the past in the moving average, in [0, 1)
        initial: the moving average before the first update, a reward; null = the mean of the first rewards
        normalise: divide advantages by their standard deviation over the samples
    """

    kind: AdvantageKind = "leave-one-out"
    decay: float = 0.9
    initial: float | None = -10.0
    normalise: bool = True

    def __post_init__(self) -> None:
        fraction("training.advantage.", decay=self.decay)


@dataclass(frozen=True)
class ExplorationConfig:
    """How samples are kept varied.

    Args:
        noise: standard deviation of Gaussian noise on every logit during the first updates, at least 0
        noise_updates: how many updates add noise
        entropy_start: reward of a nat of entropy (summed over a sample's decisions) at the first update
        entropy_end: the coefficient at the last update, linear in between
    """

    noise: float = 0.0
    noise_updates: int = 0
    entropy_start: float = 0.01
    entropy_end: float = 0.0

    def __post_init__(self) -> None:
        at_least(0, "training.exploration.", noise=self.noise, noise_updates=self.noise_updates)
        at_least(0, "training.exploration.", entropy_start=self.entropy_start, entropy_end=self.entropy_end)

    def entropy(self, progress: float) -> float:
        """The entropy coefficient where `progress` in [0, 1] of the updates are done."""
        return self.entropy_start + (self.entropy_end - self.entropy_start) * progress


@dataclass(frozen=True)
class WarmStartConfig:
    """Imitation of a placement before reinforcement, by cross-entropy on the choices that make it.

    Args:
        updates: how many updates imitate; 0 = none
        lr: learning rate of Adam while imitating, above 0
        planners: the fastest feasible placement of these planners is imitated; empty = of all heuristics
    """

    updates: int = 0
    lr: float = 1e-3
    planners: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        at_least(0, "training.warm_start.", updates=self.updates)
        above(0, "training.warm_start.", lr=self.lr)


@dataclass(frozen=True)
class TrainingConfig:
    """The policy gradient and its loop.

    Args:
        updates: updates by policy gradient, after those of the warm start
        groupings: groupings sampled for a problem at an update (m)
        placements: placements sampled of each grouping (k); an update evaluates m x k samples of a problem
        problems_per_update: problems whose gradients are averaged in an update, in a seeded order
        mask_infeasible_after: from this update on infeasible samples don't count; null = they always count
        self_imitation: weight of the nats of the best own sample of a problem so far, at least 0; 0 = plain policy gradient
        checkpoint_every: updates between checkpoints
        greedy_every: updates between greedy decodings
        threads: threads of torch and of the simulator; 0 = all cores
        device: where the policy computes: "cpu", or "gpu" (the first CUDA device; results are those of a CPU up to rounding)
        optimizer: Adam
        reward: what a step time is worth
        advantage: what a reward is compared with
        exploration: noise and entropy
        warm_start: imitation before the policy gradient
    """

    updates: int = 300
    groupings: int = 1
    placements: int = 64
    problems_per_update: int = 1
    mask_infeasible_after: int | None = None
    self_imitation: float = 0.0
    checkpoint_every: int = 50
    greedy_every: int = 10
    threads: int = 0
    device: TrainingDevice = "cpu"
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    advantage: AdvantageConfig = field(default_factory=AdvantageConfig)
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)

    def __post_init__(self) -> None:
        at_least(0, "training.", updates=self.updates, threads=self.threads, self_imitation=self.self_imitation)
        at_least(1, "training.", groupings=self.groupings, placements=self.placements, problems_per_update=self.problems_per_update)
        at_least(1, "training.", checkpoint_every=self.checkpoint_every, greedy_every=self.greedy_every)
        if self.mask_infeasible_after is not None:
            at_least(0, "training.", mask_infeasible_after=self.mask_infeasible_after)
        if self.advantage.kind == "leave-one-out" and self.samples < 2:
            raise ValueError(f"training.advantage.kind: leave-one-out needs 2 samples, but groupings x placements is {self.samples}")

    @property
    def samples(self) -> int:
        return self.groupings * self.placements

    @property
    def all_updates(self) -> int:
        return self.warm_start.updates + self.updates
