"""The budget of a search: a number of evaluations, a time, or both. Without a time, results are the same on every machine.

A budget also ends where a step is known that nothing beats, if it is told what that is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gnnplace.baselines.searching.clock import running_s
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, StepResult


class Goal:
    """A step time that no step is shorter than, and whether one that takes no longer was found. Parts of a budget share it."""

    def __init__(self, bound_ns: int | None) -> None:
        self.bound_ns, self.reached = bound_ns, False


class Budget:
    """The evaluations and seconds that a search may use, from the creation of the budget on, or since the clock was at `started`; `clock`
    returns seconds (default: wall-clock).

    The user of a budget adds its evaluations to `spent`. With `bound_ns`, a lower bound on the step time, the budget is used up once a
    `Watched` evaluator has seen a feasible step that takes no longer.
    Raises ValueError where neither limit is given or one is not positive.
    """

    def __init__(
        self,
        *,
        evaluations: int | None = None,
        seconds: float | None = None,
        clock: Callable[[], float] = running_s,
        bound_ns: int | None = None,
        started: float | None = None,
    ) -> None:
        if evaluations is None and seconds is None:
            raise ValueError("budget: neither evaluations nor seconds; a search needs an end")
        for name, value in (("evaluations", evaluations), ("seconds", seconds)):
            if value is not None and not value > 0:
                raise ValueError(f"budget: {value} {name}; it must be greater than 0")
        self.evaluations, self.seconds = evaluations, seconds
        self.spent, self._clock, self.goal = 0, clock, Goal(bound_ns)
        self._start = clock() if started is None else started

    @property
    def used(self) -> float:
        """The used share of the evaluations or of the time, whichever is larger; 1 or more at the end."""
        shares = [float(self.goal.reached)]
        if self.evaluations is not None:
            shares.append(self.spent / self.evaluations)
        if self.seconds is not None:
            shares.append((self._clock() - self._start) / self.seconds)
        return max(shares)

    def left(self, share: float) -> Budget:
        """A new budget with a share of the rest, at least one evaluation. The caller adds what is spent of it to this one."""
        evaluations = None if self.evaluations is None else max(1, int(share * (self.evaluations - self.spent)))
        seconds = None if self.seconds_left is None else max(1e-9, share * self.seconds_left)
        return self._part(evaluations, seconds)

    def until(self, share: float) -> Budget:
        """A budget that started with this one and ends when `share` of this one is used. The caller adds what it spends to this one."""
        evaluations = None if self.evaluations is None else max(1, int(share * self.evaluations))
        budget = self._part(evaluations, None if self.seconds is None else share * self.seconds)
        budget.spent, budget._start = self.spent, self._start
        return budget

    def _part(self, evaluations: int | None, seconds: float | None) -> Budget:
        budget = Budget(evaluations=evaluations, seconds=seconds, clock=self._clock)
        budget.goal = self.goal
        return budget

    @property
    def seconds_left(self) -> float | None:
        """The seconds left, negative after the end; None without a time limit."""
        return None if self.seconds is None else self._start + self.seconds - self._clock()

    def allows(self, wanted: int) -> int:
        """The number of evaluations allowed now, `wanted` at most."""
        if self.used >= 1:
            return 0
        return wanted if self.evaluations is None else min(wanted, self.evaluations - self.spent)


class Counted:
    """An `Evaluator` that counts its evaluations against a budget. It does not enforce the budget."""

    def __init__(self, evaluate: Evaluator, budget: Budget) -> None:
        self._evaluate, self._budget = evaluate, budget

    def __call__(
        self, problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
    ) -> tuple[StepResult, ...]:
        self._budget.spent += len(placements)
        return self._evaluate(problem, placements, timeline=timeline, limit_ns=limit_ns)


class Watched:
    """An `Evaluator` that notes for a budget when a step reaches its bound."""

    def __init__(self, evaluate: Evaluator, budget: Budget) -> None:
        self._evaluate, self._goal = evaluate, budget.goal

    def __call__(
        self, problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
    ) -> tuple[StepResult, ...]:
        results = self._evaluate(problem, placements, timeline=timeline, limit_ns=limit_ns)
        if (bound_ns := self._goal.bound_ns) is not None:
            self._goal.reached |= any(each.feasible_ns is not None and each.feasible_ns <= bound_ns for each in results)
        return results
