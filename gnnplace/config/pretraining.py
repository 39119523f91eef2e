"""The knobs of what comes before reinforcement: clusterings, placements of planners, and what moves gain."""

from __future__ import annotations

from dataclasses import dataclass

from gnnplace.knobs import MOST_OF_A_STEP, above, at_least, between, fraction


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


@dataclass(frozen=True)
class MovesConfig:
    """Learning what every move of a pool gains: all of them are evaluated, in a search that the policy guides, before any reinforcement.

    Args:
        updates: how many updates learn so; 0 = none
        lr: learning rate of Adam meanwhile, above 0
        pools: of how many placements of a problem the moves are evaluated in an update
        drawn: moves in a pool
        best_of: the policy is to draw a pool's best move in so many draws
        shared: weight of the cross-entropy with the shares of all gains, at least 0; it leads where the policy knows nothing yet
        power: a pool weighs by its best gain to this power: 0 = all alike
        lists: random list schedules whose fastest is a search's start, from 1 to this number; 0 = the fastest device alone
        from_single: share of the searches that start from the fastest device alone, in [0, 1)
    """

    updates: int = 0
    lr: float = 2e-3
    pools: int = 6
    drawn: int = 200
    best_of: int = 4
    shared: float = 0.2
    power: float = 0.5
    lists: int = 24
    from_single: float = 0.2

    def __post_init__(self) -> None:
        at_least(0, "training.moves.", updates=self.updates, shared=self.shared, power=self.power)
        between(0, MOST_OF_A_STEP, "training.moves.", lists=self.lists)
        between(1, MOST_OF_A_STEP, "training.moves.", pools=self.pools, drawn=self.drawn, best_of=self.best_of)
        above(0, "training.moves.", lr=self.lr)
        fraction("training.moves.", from_single=self.from_single)
