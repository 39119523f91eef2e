"""The improver: a policy that improves a whole placement step by step, from the timeline of each step.

Placeto (Addanki et al., NeurIPS 2019) made a placement a sequence of improvements, one op group after another, over
embeddings of the graph. The improver keeps the sequence and chooses freely among moves: blocks of any grain, from one
op to a layer, to any device, and exchanges of blocks. It reads scale-free features of a move (`moves.features`): which
ops wait, for how long and for what, the longest path through the moved ops, loads, idle time, transfers, memory. None
names an op, a graph or a device, so one set of weights serves any graph on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from gnnplace.knobs import MOST_LAYERS, MOST_OF_A_STEP, MOST_WIDTH, between
from gnnplace.moves.columns import hopeless
from gnnplace.moves.neighbourhood import Devices, neighbourhood
from gnnplace.moves.pool import Pool, fresh
from gnnplace.moves.ranking import Ranking
from gnnplace.moves.situation import Situation, situation
from gnnplace.placement import Placement, Schedule
from gnnplace.policies.improver.learning import LearnsMoves
from gnnplace.policies.improver.scorer import FEATURES, MoveScorer
from gnnplace.policies.protocol import Choose, PolicyConfig, PolicyShape
from gnnplace.policies.states import fastest_device
from gnnplace.problems import Problem
from gnnplace.result import Score, StepResult, score

DRAWS = 2**16  # an episode's draws are one of so many


@dataclass(frozen=True)
class ImproverConfig(PolicyConfig):
    """The policy that improves placements by moves that it chooses from what their timelines say.

    Args:
        kind: names this policy
        width: of the hidden layers of the network that scores moves
        hidden: how many hidden layers it has; 0 = logistic regression, an ablation
        rounds: moves in an episode
        drawn: moves among which it chooses in each round
        schedule: how ops are ordered within devices
    """

    kind: Literal["improver"] = "improver"
    width: int = 128
    hidden: int = 2
    rounds: int = 16
    drawn: int = 100
    schedule: Schedule = "critical-path"

    def __post_init__(self) -> None:
        between(1, MOST_WIDTH, "policy.", width=self.width)
        between(1, MOST_OF_A_STEP, "policy.", rounds=self.rounds, drawn=self.drawn)
        between(0, MOST_LAYERS, "policy.", hidden=self.hidden)
        self.require_rule()

    def build(self, shape: PolicyShape, groupings: int, seed: int) -> Improver:
        return Improver(self)


class ImproverState(NamedTuple):
    """The state of an episode: each sample's seed, best placement with score and situation, and last try."""

    problem: Problem
    round: int
    seeds: tuple[int, ...]
    best: tuple[Devices, ...]
    scores: tuple[Score | None, ...]
    situations: tuple[Situation | None, ...]
    tried: tuple[Devices, ...]


class Improver(nn.Module):
    """Improves the placement on the fastest device alone in `rounds` moves of each sample.

    Reads the timeline of what it tried: `features` of `drawn` moves from the best placement so far,
    `Float[samples moves features]`.

    Decides, in the first step of an episode, "draws": the seed of a sample's draws, uniformly. Then in each step
    "move": one of the moves drawn, `Int[samples]`, in proportion to `exp(score)`, without those that can't improve the
    step. A better placement replaces the present one. The last step proposes the best placement and decides nothing.

    Learns from the gain of every move of a pool (`learning.py`), and from the summed log-probability of its moves.
    """

    feedback: ClassVar[str] = "timeline"

    def __init__(self, knobs: ImproverConfig) -> None:
        super().__init__()
        self.knobs = knobs
        self.scorer = MoveScorer(knobs.width, knobs.hidden)

    def reset(self, problem: Problem, samples: int) -> ImproverState:
        start = neighbourhood(problem).start(
            Placement(np.full(problem.num_ops, fastest_device(problem), dtype=np.int32), self.knobs.schedule)
        )
        none = (None,) * samples
        return ImproverState(problem, 0, (0,) * samples, (start,) * samples, none, none, (start,) * samples)

    def scores(self, rows: Float32[np.ndarray, "*moves features"]) -> Float[Tensor, " *moves"]:
        """The logit of each move of a pool."""
        return self.scorer(torch.from_numpy(rows).to(self.scorer.low))

    def ranking(self) -> Ranking:
        """The scorer as searches use it."""
        return self.scorer.ranking()

    def objectives(self, training: Any) -> tuple[LearnsMoves]:
        return (LearnsMoves(self.scorer, training.moves),)

    def step(
        self, state: ImproverState, choose: Choose, feedback: Sequence[StepResult] | None
    ) -> tuple[tuple[Placement, ...], ImproverState | None]:
        """One move of every sample; without feedback the policy proposes its start."""
        samples = len(state.seeds)
        if state.round == 0:
            seeds = choose("draws", torch.zeros(samples, DRAWS, device=self.scorer.low.device))
            return self._placed(state, state.best), state._replace(round=1, seeds=tuple(seeds.cpu().tolist()))
        state = _informed(state, feedback)
        if state.round > self.knobs.rounds or feedback is None:
            return self._placed(state, state.best), None
        pools = [self._pool(state, sample) for sample in range(samples)]
        rows, open_ = (
            np.zeros((samples, self.knobs.drawn, FEATURES), np.float32),
            np.zeros((samples, self.knobs.drawn), bool),
        )
        for sample, pool in enumerate(pools):
            if pool is not None:
                rows[sample, : len(pool.rows)] = pool.rows
                open_[sample, : len(pool.rows)] = ~hopeless(pool.rows)
        stays = np.logical_not(open_.any(axis=1))
        open_[stays, 0] = True  # there is no choice
        chosen = choose("move", self.scores(rows), torch.from_numpy(open_).to(self.scorer.low.device)).cpu().tolist()
        moved = zip(pools, state.best, chosen, list(stays), strict=True)
        tried = tuple(
            device if pool is None or stay else pool.moves.after(move, device) for pool, device, move, stay in moved
        )
        return self._placed(state, tried), state._replace(round=state.round + 1, tried=tried)

    def _pool(self, state: ImproverState, sample: int) -> Pool | None:
        """Moves from a sample's placement; None if there are none, or its timeline is unknown."""
        around, current = neighbourhood(state.problem), state.situations[sample]
        if current is None or not around.grains:
            return None
        return fresh(
            around,
            state.best[sample],
            current,
            np.random.default_rng([state.seeds[sample], state.round]),
            self.knobs.drawn,
        )

    def _placed(self, state: ImproverState, devices: Sequence[Devices]) -> tuple[Placement, ...]:
        around = neighbourhood(state.problem)
        return tuple(around.placement(device, self.knobs.schedule) for device in devices)


def _informed(state: ImproverState, feedback: Sequence[StepResult] | None) -> ImproverState:
    """The state after the results: a tried placement that is at least as good replaces the present one."""
    if feedback is None:
        return state
    around = neighbourhood(state.problem)
    best, scores, situations = list(state.best), list(state.scores), list(state.situations)
    for sample, (tried, result) in enumerate(zip(state.tried, feedback, strict=True)):
        reached, before = score(state.problem, result), scores[sample]
        if result.timeline is not None and (before is None or reached <= before):
            best[sample], scores[sample] = tried, reached
            situations[sample] = situation(state.problem, around, tried, result)
    return state._replace(best=tuple(best), scores=tuple(scores), situations=tuple(situations))
