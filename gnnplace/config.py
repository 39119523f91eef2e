"""Everything a training run can be told: a tree of frozen dataclasses, each knob with its unit, default and check.

A policy's configuration is its constructor's keyword arguments. A bad value is a ValueError that names the
value, the rule and the knob. The two complete runs are configs/paper.yaml and configs/gnn.yaml.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from gnnplace.placement import Schedule

UnitsName = Literal["ops", "weights", "coarse"]
GrouperName = Literal["learned", "random", "none"]
EncoderName = Literal["paper", "gnn"]
RewardKind = Literal["sqrt", "log-ratio"]
AdvantageKind = Literal["moving-average", "leave-one-out"]
PolicyName = Literal["hierarchical", "unit-placer"]
TrackingName = Literal["mlflow", "none"]


def _at_least(low: float, **knobs: float) -> None:
    for knob, value in knobs.items():
        if not value >= low:
            raise ValueError(f"{knob}: {value} is below {low}")


def _above(low: float, **knobs: float) -> None:
    for knob, value in knobs.items():
        if not value > low:
            raise ValueError(f"{knob}: {value} is not above {low}")


@dataclass(frozen=True)
class OptimizerConfig:
    """Adam with a fixed learning rate and gradients clipped by their norm.

    Args:
        lr: learning rate, above 0
        beta1: decay of the mean of gradients, in [0, 1)
        beta2: decay of the mean of squared gradients, in [0, 1)
        eps: added to the denominator, above 0
        clip_norm: the largest gradient norm over all parameters, above 0
    """

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        _above(0, lr=self.lr, eps=self.eps, clip_norm=self.clip_norm)
        for knob, value in (("beta1", self.beta1), ("beta2", self.beta2)):
            if not 0 <= value < 1:
                raise ValueError(f"{knob}: {value} is not in [0, 1)")


@dataclass(frozen=True)
class RewardConfig:
    """What a step time is worth to the policy.

    Args:
        kind: "sqrt" is -sqrt(seconds); "log-ratio" is -log(step time / best single device) - overflow * excess memory
        infeasible: the reward of an infeasible placement under "sqrt", below 0
        overflow: reward lost per unit of memory overflow, a fraction of the device's memory, at least 0
    """

    kind: RewardKind = "log-ratio"
    infeasible: float = -10.0
    overflow: float = 5.0

    def __post_init__(self) -> None:
        _at_least(0, overflow=self.overflow)
        if not self.infeasible < 0:
            raise ValueError(f"infeasible: {self.infeasible} is not below 0")


@dataclass(frozen=True)
class AdvantageConfig:
    """What a reward is compared with.

    Args:
        kind: "moving-average" of past rewards (one a problem), or "leave-one-out": the mean of the other samples
        decay: weight of the past in the moving average, in [0, 1)
        initial: the moving average before the first update, a reward
        normalise: divide advantages by their standard deviation over the samples
    """

    kind: AdvantageKind = "leave-one-out"
    decay: float = 0.9
    initial: float = -10.0
    normalise: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay: {self.decay} is not in [0, 1)")


@dataclass(frozen=True)
class ExplorationConfig:
    """How samples are kept varied.

    Args:
        noise: standard deviation of Gaussian noise on every logit during the first updates, at least 0
        noise_updates: how many updates add noise
        entropy_start: nats of mean decision entropy are rewarded with this coefficient at the first update
        entropy_end: the coefficient at the last update, linear in between
    """

    noise: float = 0.0
    noise_updates: int = 0
    entropy_start: float = 0.01
    entropy_end: float = 0.0

    def __post_init__(self) -> None:
        _at_least(0, noise=self.noise, noise_updates=self.noise_updates, entropy_start=self.entropy_start, entropy_end=self.entropy_end)

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
        _at_least(0, updates=self.updates)
        _above(0, lr=self.lr)


@dataclass(frozen=True)
class TrainingConfig:
    """The policy gradient and its loop.

    Args:
        updates: updates by policy gradient, after those of the warm start
        groupings: groupings sampled for a problem at an update (m)
        placements: placements sampled of each grouping (k); an update evaluates m x k samples of a problem
        problems_per_update: problems whose gradients are averaged in an update, in a seeded order
        mask_infeasible_after: from this update on infeasible samples don't count; null = they always count
        checkpoint_every: updates between checkpoints
        greedy_every: updates between greedy decodings
        threads: threads of torch and of the simulator; 0 = all cores
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
    checkpoint_every: int = 50
    greedy_every: int = 10
    threads: int = 0
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    advantage: AdvantageConfig = field(default_factory=AdvantageConfig)
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)

    def __post_init__(self) -> None:
        _at_least(0, updates=self.updates, threads=self.threads)
        _at_least(1, groupings=self.groupings, placements=self.placements, problems_per_update=self.problems_per_update)
        _at_least(1, checkpoint_every=self.checkpoint_every, greedy_every=self.greedy_every)
        if self.mask_infeasible_after is not None:
            _at_least(0, mask_infeasible_after=self.mask_infeasible_after)
        if self.advantage.kind == "leave-one-out" and self.samples < 2:
            raise ValueError(f"advantage.kind: leave-one-out needs at least 2 samples, not groupings x placements = {self.samples}")

    @property
    def samples(self) -> int:
        return self.groupings * self.placements

    @property
    def all_updates(self) -> int:
        return self.warm_start.updates + self.updates


@dataclass(frozen=True)
class UnitPlacerConfig:
    """The autoregressive placer of units that sees each device's load, memory and links.

    Args:
        units: what is placed together
        width: width of embeddings
        rounds: rounds of message passing
        hidden: width of the scorer's hidden layer
        message_passing: whether units see their neighbours; off = an ablation
        state_features: whether a decision sees the devices' current state; off = an ablation
        schedule: how ops are ordered within devices
    """

    units: UnitsName = "coarse"
    width: int = 64
    rounds: int = 3
    hidden: int = 32
    message_passing: bool = True
    state_features: bool = True
    schedule: Schedule = "critical-path"

    def __post_init__(self) -> None:
        _at_least(1, width=self.width, hidden=self.hidden)
        _at_least(0, rounds=self.rounds)


@dataclass(frozen=True)
class RunConfig:
    """One training run.

    Args:
        policy: the policy's own knobs
        name: the run's folder under `runs` starts with it
        seed: of initial weights, samples and the order of problems, at least 0
        problems: pairs of a graph (corpus name or file) and a cluster (preset or file)
        training: the policy gradient and its loop
        runs: the folder of run folders and of the tracking database
        tracking: "mlflow" (SQLite and files under `runs`) or "none"
    """

    policy: PolicyConfig
    name: str = "run"
    seed: int = 0
    problems: tuple[tuple[str, str], ...] = (("nmt-2", "k40-2"),)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    runs: str = "runs"
    tracking: TrackingName = "mlflow"
