"""The knobs `training.moves` of the phase that the improver brings."""

from __future__ import annotations

from dataclasses import dataclass

from gnnplace.knobs import MOST_OF_A_STEP, above, at_least, between, fraction


@dataclass(frozen=True)
class MovesConfig:
    """Learning the gain of every move of a pool, before any reinforcement.

    A search that the policy guides evaluates all moves of its pools.

    Args:
        updates: how many updates learn so; 0 = none
        lr: learning rate of Adam meanwhile, above 0
        pools: of how many placements of a problem the moves are evaluated in an update
        drawn: moves in a pool
        best_of: the policy is to draw a pool's best move in so many draws
        shared: weight of the cross-entropy with the shares of all gains, at least 0; it leads where the policy knows
            nothing yet
        power: a pool weighs by its best gain to this power: 0 = all alike
        lists: random list schedules whose fastest is a search's start, from 1 to this number; 0 = the fastest device
            alone
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
