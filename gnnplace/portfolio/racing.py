"""Searches from many starts: the one goes on that promises the best end.

It is unknown which start leads to the best step, and one that is behind may have more room. Each has a short search
first. Then the one goes on whose last search leads to expect the best step at the end of the budget, for as long as all
of its searches so far took. A start that gains nothing leaves the budget to others, and none is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2

from gnnplace.baselines.searching.budget import Budget
from gnnplace.portfolio.candidates import BY_SCORE, Candidate
from gnnplace.result import Score

FIRST = 0.25  # the share of the budget for the first searches of all starts together
LASTING = 0.7  # of what a search gained, how much is expected of one that takes as long as all before it
Searched = Callable[[Candidate, Budget], Candidate]  # the result of a search from a candidate, never worse


def raced(starts: Sequence[Candidate], budget: Budget, search: Searched) -> Candidate:
    """The best result of searches from at least one start."""
    if len(starts) == 1:
        return search(starts[0], budget)
    runners, begun = [_Runner(start, start.score) for start in starts], budget.used
    for runner in runners:
        runner.go_on(search, budget, FIRST / len(runners), _left(budget, begun))
    while budget.allows(1) and (going := [runner for runner in runners if not runner.ended]):
        left = _left(budget, begun)
        runner = min(going, key=lambda each: each.promise(left))
        runner.go_on(search, budget, runner.had, left)
    return min((runner.here for runner in runners), key=BY_SCORE)


def _left(budget: Budget, begun: float) -> float:
    """The share that is left of what the budget allowed when a share of `begun` was used."""
    return (1 - budget.used) / (1 - begun) if budget.used < 1 else 0.0


@dataclass
class _Runner:
    """Where the searches from a start have come to, from where the last one began, and the share that all of them had.

    They have ended if the last one found nothing left to try.
    """

    here: Candidate
    before: Score
    had: float = 0.0
    ended: bool = False

    def go_on(self, search: Searched, budget: Budget, share: float, left: float) -> None:
        """Searches for this share of the budget, of which another is left."""
        if not budget.allows(1):
            return
        part = budget.left(min(1.0, share / left))
        self.before, self.here = self.here.score, search(self.here, part)
        self.had += share
        self.ended = part.used < 1 and self.here.score == self.before

    def promise(self, left: float) -> tuple[int, float, float]:
        """The score that it would come to if it had all that is left."""
        feasibility, excess, step = self.here.score
        doublings = log2((self.had + left) / self.had)
        times = (1 - LASTING**doublings) / (1 - LASTING) if feasibility == self.before.feasibility else 0.0

        def after(now: int, then: int) -> float:
            return now * min(1.0, now / max(1, then)) ** times

        return feasibility, after(excess, self.before.excess_bytes), after(step, self.before.step_time_ns)
