"""The knobs of what comes before reinforcement, for any policy that can: clusterings, and placements of planners."""

from __future__ import annotations

from dataclasses import dataclass

from gnnplace.knobs import above, at_least


@dataclass(frozen=True)
class GroupingConfig:
    """Pre-training of a policy that groups ops: its groups imitate a clustering of each graph, before anything is placed.

    Args:
        updates: how many updates imitate clusterings; 0 = none
        lr: learning rate of Adam meanwhile, above 0
        lr_after: the share of the later learning rate that what has learned to group goes on with, undecayed, at least 0; 0 = it stays
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
