"""The budget of a search: a number of evaluations, a time, or both. Without a time, results are the same on every
machine.

A budget also ends where a step is known that nothing beats, if it is told what that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gnnplace.baselines.searching.clock import running_s
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, StepResult


class Budget:
    """The evaluations and seconds that a search may use, from the creation of the budget on, or since the clock was at
    `started`; `clock` returns seconds (default: wall-clock).

    `metered` gives the evaluator that the budget pays for. With `bound_ns`, a lower bound on the step time, the budget
    is used up once that evaluator has seen a feasible step that takes no longer. A budget has parts: what they spend,
    it has spent, and all end at the bound. Raises ValueError where neither limit is given or one is not positive.
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
        self.spent, self._clock = 0, clock
        self._start = clock() if started is None else started
        self._bound_ns, self._reached = bound_ns, False
        self._wholes: tuple[Budget, ...] = ()  # those that this one is a part of, the largest first

    @property
    def used(self) -> float:
        """The used share of the evaluations or of the time, whichever is larger; 1 or more at the end."""
        shares = [float(self._largest._reached)]
        if self.evaluations is not None:
            shares.append(self.spent / self.evaluations)
        if self.seconds is not None:
            shares.append((self._clock() - self._start) / self.seconds)
        return max(shares)

    def metered(self, evaluate: Evaluator) -> Evaluator:
        """An evaluator whose evaluations this budget pays for; it does not refuse any. No evaluation is paid for twice:
        where `evaluate` is metered by this budget already, or by one that it is a part of, it is metered by this one
        instead.
        """
        return Metered(
            evaluate.evaluate if isinstance(evaluate, Metered) and evaluate.budget in self._family else evaluate, self
        )

    def pay(self, evaluations: int) -> None:
        """Spends evaluations, of this budget and of those that it is a part of."""
        for budget in self._family:
            budget.spent += evaluations

    @property
    def bound_ns(self) -> int | None:
        """What no step is shorter than, as far as anybody knows; None where nobody does."""
        return self._largest._bound_ns

    def prove(self, bound_ns: int) -> None:
        """Raises the bound to what a search has proved, for all that share it."""
        self._largest._bound_ns = max(self.bound_ns or 0, bound_ns)

    def notice(self, results: Iterable[StepResult]) -> None:
        """Ends the budget, and all that share its bound, where one of the
        steps is feasible and takes no longer than the bound.
        """
        if self.bound_ns is not None:
            self._largest._reached |= any(
                each.feasible_ns is not None and each.feasible_ns <= self.bound_ns for each in results
            )

    def left(self, share: float) -> Budget:
        """A part with a share of the rest, at least one evaluation."""
        evaluations = None if self.evaluations is None else max(1, int(share * (self.evaluations - self.spent)))
        seconds = None if self.seconds_left is None else max(1e-9, share * self.seconds_left)
        return self._part(evaluations, seconds)

    def until(self, share: float) -> Budget:
        """A part that started with this budget and ends when `share` of this one is used."""
        evaluations = None if self.evaluations is None else max(1, int(share * self.evaluations))
        budget = self._part(evaluations, None if self.seconds is None else share * self.seconds)
        budget.spent, budget._start = self.spent, self._start
        return budget

    def _part(self, evaluations: int | None, seconds: float | None) -> Budget:
        budget = Budget(evaluations=evaluations, seconds=seconds, clock=self._clock)
        budget._wholes = self._family
        return budget

    @property
    def _family(self) -> tuple[Budget, ...]:
        return (*self._wholes, self)

    @property
    def _largest(self) -> Budget:
        return self._family[0]

    @property
    def seconds_left(self) -> float | None:
        """The seconds left, negative after the end; None without a time limit."""
        return None if self.seconds is None else self._start + self.seconds - self._clock()

    def allows(self, wanted: int) -> int:
        """The number of evaluations allowed now, `wanted` at most."""
        if self.used >= 1:
            return 0
        return wanted if self.evaluations is None else min(wanted, self.evaluations - self.spent)


class Metered:
    """An `Evaluator` that a budget pays for, and that tells it of every step. `Budget.metered` makes it."""

    def __init__(self, evaluate: Evaluator, budget: Budget) -> None:
        self.evaluate, self.budget = evaluate, budget

    def __call__(
        self, problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
    ) -> tuple[StepResult, ...]:
        self.budget.pay(len(placements))
        results = self.evaluate(problem, placements, timeline=timeline, limit_ns=limit_ns)
        self.budget.notice(results)
        return results
