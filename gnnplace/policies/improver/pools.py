"""The gain of every move of a pool: searches that the policy guides on the training problems evaluate all moves.

The policy learns on the states that its own search visits (DAgger; Ross, Gordon and Bagnell, AISTATS 2011). The search
starts from random list schedules or a single device. Its ranking is disturbed, more in some searches than in others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Float64

from gnnplace.moves.columns import hopeless
from gnnplace.moves.drawing import Drawn
from gnnplace.moves.features import work
from gnnplace.moves.neighbourhood import Devices, neighbourhood
from gnnplace.moves.pool import Pool, fresh, some
from gnnplace.moves.situation import Situation, situation
from gnnplace.placement import Schedule
from gnnplace.policies.improver.config import MovesConfig
from gnnplace.policies.protocol import Practice
from gnnplace.problems import Problem
from gnnplace.result import Score, score

TEMPERATURES = (0.0, 0.2, 0.5, 1.5)  # of the disturbance of a search's ranking, in its standard deviations
LATE, AHEAD = 0.5, 24  # the share of searches whose first pool comes later, after so many rounds at most
FAILURES = 5  # rounds in a row without a better placement, after which a search ends
LEAST_GAIN = 1e-5
SHOWN = 300  # problems that show the range of features

Rank = Callable[[Float32[np.ndarray, "moves features"]], Float[np.ndarray, " moves"]]


class Labelled(NamedTuple):
    """The moves of a pool that may improve the step, and the share of the step time that each saves.

    Gains are at least 0, and one is above 0.
    """

    rows: Float32[np.ndarray, "moves features"]
    gain: Float64[np.ndarray, " moves"]
    moves: Drawn
    situation: Situation  # of the placement that they change


class _At(NamedTuple):
    device: Devices
    schedule: Schedule
    score: Score
    situation: Situation


class Searched:
    """A search whose pools are evaluated whole. It ends early if nothing improves or nothing fits."""

    def __init__(self, problem: Problem, rank: Rank, config: MovesConfig, practice: Practice) -> None:
        self._problem, self._rank, self._config = problem, rank, config
        self._evaluate, self._starts, self._generator = practice
        self._around = neighbourhood(problem)
        self._scratch = work(self._around.terrain)
        self._temperature = float(self._generator.choice(TEMPERATURES))

    def pools(self) -> Iterator[Labelled]:
        """The pools of as many placements as the configuration says, or fewer."""
        at = self.start()
        ahead = int(self._generator.integers(AHEAD + 1)) if self._generator.random() < LATE else 0
        failures, yielded = 0, 0
        while at is not None and self._around.grains and yielded < self._config.pools and failures < FAILURES:
            pool = self.drawn(at)
            live = np.flatnonzero(~hopeless(pool.rows))
            if len(live) < 2:
                failures += 1
                continue
            pool = Pool(some(pool.moves, live), pool.rows[live])
            order = self._disturbed(pool)
            if labels := ahead <= 0:
                gain = self._gains(at, pool, np.arange(len(live)))
                if gain.max() > LEAST_GAIN and failures == 0:
                    yielded += 1
                    yield Labelled(pool.rows, gain, pool.moves, at.situation)
            chosen = order[: self._config.best_of]
            gained = gain[chosen] if labels else self._gains(at, pool, chosen)
            ahead -= 1
            if gained.max() > 0:
                device = pool.moves.after(int(chosen[gained.argmax()]), at.device)
                at, failures = self._looked_at(device, at.schedule), 0
            else:
                failures += 1

    def start(self) -> _At | None:
        """The start of the search, None if it doesn't fit."""
        config, generator = self._config, self._generator
        lists = config.lists if config.lists and generator.random() >= config.from_single else 0
        start = self._starts(self._problem, self._evaluate, generator, lists)
        return self._looked_at(self._around.start(start), start.schedule)

    def drawn(self, at: _At) -> Pool:
        """Moves from a placement."""
        return fresh(self._around, at.device, at.situation, self._generator, self._config.drawn, scratch=self._scratch)

    def _looked_at(self, device: Devices, schedule: Schedule) -> _At | None:
        """The situation of a placement; None if it doesn't fit, because its step time means nothing then."""
        placement = self._around.placement(device, schedule)
        (result,) = self._evaluate(self._problem, [placement], timeline=True)
        if result.feasible_ns is None:
            return None
        seen = situation(self._problem, self._around, device, result)
        return _At(device, schedule, score(self._problem, result), seen)

    def _disturbed(self, pool: Pool) -> np.ndarray:
        estimate = np.asarray(self._rank(pool.rows), dtype=np.float64)
        estimate = (estimate - estimate.mean()) / (estimate.std() + 1e-9)
        return np.argsort(-(estimate + self._temperature * self._generator.gumbel(size=len(estimate))), kind="stable")

    def _gains(self, at: _At, pool: Pool, which: np.ndarray) -> Float64[np.ndarray, " moves"]:
        """The share of the step time that each of these moves saves, at least 0.

        The evaluation of a move that saves nothing may stop early.
        """
        tried = [self._around.placement(pool.moves.after(int(move), at.device), at.schedule) for move in which]
        results = self._evaluate(self._problem, tried, limit_ns=at.score.limit_ns)
        times = np.array(
            [at.score.step_time_ns if result.feasible_ns is None else result.feasible_ns for result in results]
        )
        return np.maximum(0.0, 1 - times / at.score.step_time_ns)


def rows_of(
    problems: Sequence[Problem], config: MovesConfig, practice: Practice
) -> Float32[np.ndarray, "moves features"]:
    """The features of moves from starts of searches on some of the problems. Raises ValueError if no start fits."""
    rows = []
    for number in practice.generator.permutation(len(problems))[:SHOWN].tolist():
        search = Searched(problems[number], lambda rows: rows[:, 0], config, practice)
        if (at := search.start()) is not None and problems[number].num_devices > 1:
            rows.append(search.drawn(at).rows)
    if not sum(map(len, rows)):
        raise ValueError("training.moves: no start of any problem fits, so there is nothing to learn from")
    return np.concatenate(rows)
