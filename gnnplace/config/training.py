"""The knobs of training: pre-training, optimiser, reward, credit, exploration, and the loop around them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from gnnplace.knobs import MOST_OF_A_STEP, above, at_least, between, finite, fraction
from gnnplace.policies.improver.config import MovesConfig

MOST_THREADS = 1024

RewardKind = Literal["sqrt", "sqrt-ratio", "inverse", "log-ratio", "seconds"]
BaselineKind = Literal["moving-average", "recent-mean", "leave-one-out", "critic", "none"]
ReturnKind = Literal["terminal", "to-go", "improvement", "own", "episode"]


@dataclass(frozen=True)
class GroupingConfig:
    """Pre-training of a policy that groups ops: its groups imitate a clustering of each graph.

    Args:
        updates: how many updates imitate clusterings; 0 = none
        lr: learning rate of Adam meanwhile, above 0
        lr_after: the share of the later learning rate that what has learned to group goes on with, undecayed, at least
            0; 0 = it stays
    """

    updates: int = 0
    lr: float = 3e-3
    lr_after: float = 1.0

    def __post_init__(self) -> None:
        at_least(0, "training.grouping.", updates=self.updates, lr_after=self.lr_after)
        above(0, "training.grouping.", lr=self.lr)


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
class OptimizerConfig:
    """Adam. The Trainer's `gradient_clip_val` clips gradients by their norm: `clip` says of what.

    Args:
        lr: learning rate of the first update, above 0
        lr_decay: share of it, and of every phase's, that is gone at the phase's last update, linear in between, in [0,
            1); 0 = a fixed rate
        beta1: decay of the mean of gradients, in [0, 1)
        beta2: decay of the mean of squared gradients, in [0, 1)
        eps: added to the denominator, above 0
        clip: the gradients of what groups ops and of all else "apart" (that of a thousand grouped ops would drown that
            of thirty placed groups), or "together"
    """

    lr: float = 1e-3
    lr_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    clip: Literal["apart", "together"] = "apart"

    def __post_init__(self) -> None:
        above(0, "training.optimizer.", lr=self.lr, eps=self.eps)
        fraction("training.optimizer.", lr_decay=self.lr_decay, beta1=self.beta1, beta2=self.beta2)


@dataclass(frozen=True)
class RewardConfig:
    """The reward of a step time.

    Args:
        kind: "sqrt" is -sqrt(seconds); "sqrt-ratio" is -sqrt(step time / best single device); "inverse" is 1 / seconds,
            0 where infeasible; "log-ratio" is -log(step time / best single device) - overflow * excess memory;
            "seconds" is -seconds - overflow * missing GB, `invalid` at least
        overflow: reward lost under "log-ratio" where a device's memory is too small by its own size, under "seconds" by
            a GB; at least 0
        invalid: reward where a placement can't run: under "sqrt" and "sqrt-ratio" for whatever reason, else for another
            than memory
    """

    kind: RewardKind = "log-ratio"
    overflow: float = 5.0
    invalid: float = -10.0

    def __post_init__(self) -> None:
        at_least(0, "training.reward.", overflow=self.overflow)
        finite("training.reward.", invalid=self.invalid)


@dataclass(frozen=True)
class CreditConfig:
    """The credit of decisions: the return of each step, and what it is compared with.

    Args:
        returns: of a step: "terminal" = the reward of the episode's last step; "to-go" = its own reward and,
            discounted, those after it; "improvement" = the same of what each step adds to the reward of the step
            before, for policies that evaluate every step; "own" = its own reward, discounted by its place in the
            episode; "episode" = all rewards, those before the last discounted
        gamma: discount of a step under all of these but "terminal", in [0, 1]
        baseline: "moving-average" of past returns (one a problem and step), "recent-mean" (their plain mean over the
            last updates), "leave-one-out" (the mean of the other samples), the policy's own "critic", or "none":
            returns as they are
        draws: under leave-one-out, the best of how many samples is to be good; 1 = every sample
        window: how many updates a recent mean is of, the present one among them
        decay: weight of the past in the moving average, in [0, 1)
        initial: the moving average before the first update, a reward; null = the mean of the first returns that count
        normalise: divide advantages by the standard deviation of the returns over the samples
        floor: the smallest divisor of an advantage, above 0: spreads below it (0.001 = a thousandth of log time) stay
            small
    """

    returns: ReturnKind = "terminal"
    gamma: float = 1.0
    baseline: BaselineKind = "leave-one-out"
    draws: int = 1
    window: int = 10
    decay: float = 0.9
    initial: float | None = -10.0
    normalise: bool = True
    floor: float = 1e-3

    def __post_init__(self) -> None:
        between(1, MOST_OF_A_STEP, "training.credit.", window=self.window, draws=self.draws)
        if self.draws > 1 and self.baseline != "leave-one-out":
            raise ValueError(f"training.credit.draws: {self.draws} is of baseline leave-one-out; set it to 1")
        fraction("training.credit.", decay=self.decay)
        above(0, "training.credit.", floor=self.floor)
        finite("training.credit.", initial=self.initial or 0.0)
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"training.credit.gamma: {self.gamma} is not in [0, 1]")
        if self.baseline in ("moving-average", "recent-mean", "none") and self.normalise:
            raise ValueError(
                "training.credit.normalise: true divides advantages by a spread around the samples' own mean, "
                f"from which baseline {self.baseline!r} does not measure; set it to false"
            )


@dataclass(frozen=True)
class ExplorationConfig:
    """The exploration that keeps samples varied.

    Args:
        noise: largest amplitude of the Gaussian noise on every logit during the first updates, at least 0
        noise_updates: how many updates add noise
        entropy_start: reward of a nat of entropy (summed over a sample's decisions) at the first update
        entropy_end: the coefficient at the last update, linear in between
        entropy_of: the decisions whose entropy is rewarded, such as "device"; empty = all
    """

    noise: float = 0.0
    noise_updates: int = 0
    entropy_start: float = 0.01
    entropy_end: float = 0.0
    entropy_of: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        at_least(0, "training.exploration.", noise=self.noise, noise_updates=self.noise_updates)
        at_least(0, "training.exploration.", entropy_start=self.entropy_start, entropy_end=self.entropy_end)

    def entropy(self, progress: float) -> float:
        """The entropy coefficient where `progress` in [0, 1] of the updates are done."""
        return self.entropy_start + (self.entropy_end - self.entropy_start) * progress


POLICY_PHASES = ("moves",)  # groups of knobs below for phases that some policy brings


class Phase(NamedTuple):
    """A part of training with an Adam of its own: updates `first` to `last` - 1, at this learning rate.

    `name` is "grouping", "warm_start", "reinforcement", or the name of a phase that the policy brings.
    """

    name: str
    first: int
    last: int
    lr: float

    def progress(self, update: int) -> float:
        """The share of the phase that is done before an update: 0 at its first, 1 at its last."""
        return (update - self.first) / max(1, self.last - 1 - self.first)


@dataclass(frozen=True)
class TrainingConfig:
    """The loop.

    Args:
        updates: updates by the learning algorithm, after those of the pre-training
        groupings: groupings sampled for a problem at an update (m)
        placements: placements sampled of each grouping (k); an update evaluates m x k samples of a problem
        problems_per_update: problems that an update learns from, in a seeded order
        curriculum: share of the updates, in [0, 1), before which the largest problems don't come; 0 = all from the
            start
        mask_infeasible_after: from this update on infeasible samples don't count; null = they always count
        checkpoint_every: updates between checkpoints
        greedy_every: updates between greedy decodings of the update's problems
        validation_every: updates between placements of the validation problems; 0 = never
        threads: threads of torch and of the simulator; 0 = all cores
        optimizer: Adam
        reward: what a step time is worth
        credit: what a reward is compared with
        exploration: noise and entropy
        grouping: imitation of clusterings, first
        warm_start: imitation of placements, before reinforcement
        moves: learning what moves gain, before reinforcement
    """

    updates: int = 300
    groupings: int = 1
    placements: int = 64
    problems_per_update: int = 1
    curriculum: float = 0.0
    mask_infeasible_after: int | None = None
    checkpoint_every: int = 50
    greedy_every: int = 10
    validation_every: int = 0
    threads: int = 0
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    credit: CreditConfig = field(default_factory=CreditConfig)
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)
    grouping: GroupingConfig = field(default_factory=GroupingConfig)
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)
    moves: MovesConfig = field(default_factory=MovesConfig)

    def __post_init__(self) -> None:
        at_least(0, "training.", updates=self.updates, validation_every=self.validation_every)
        at_least(1, "training.", checkpoint_every=self.checkpoint_every, greedy_every=self.greedy_every)
        between(0, MOST_THREADS, "training.", threads=self.threads)
        between(1, MOST_OF_A_STEP, "training.", groupings=self.groupings, placements=self.placements)
        between(1, MOST_OF_A_STEP, "training.", problems_per_update=self.problems_per_update)
        fraction("training.", curriculum=self.curriculum)
        if self.mask_infeasible_after is not None:
            at_least(0, "training.", mask_infeasible_after=self.mask_infeasible_after)
        if self.credit.baseline == "leave-one-out" and self.samples < 2:
            raise ValueError(
                f"training.credit.baseline: leave-one-out needs 2 samples, but groupings x placements is {self.samples}"
            )

    @property
    def samples(self) -> int:
        return self.groupings * self.placements
