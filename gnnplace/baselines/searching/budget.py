"""The budget of a search: a number of evaluations, a time, or both.

Without a time limit, results are the same on every machine. A budget with a lower bound on the step time also ends at
the first step that reaches the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gnnplace.baselines.searching.clock import running_s
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, StepResult


class Budget:
    """The evaluations and seconds that a search may use.

    Time counts from the creation of the budget, or from the time `started`; `clock` returns seconds (default:
    wall-clock). `metered` gives the evaluator whose evaluations the budget counts. With `bound_ns`, a lower bound on
    the step time, the budget is used up once that evaluator returns a feasible step that takes no longer. A budget has
    parts: it counts what they spend, and all parts end at the bound. Raises ValueError if neither limit is given or one
    is not positive.
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
        self._wholes: tuple[Budget, ...] = ()  # the budgets of which this one is a part, the largest first

    @property
    def used(self) -> float:
        """The used share, 1 or more at the end: `spent_share`, or 1 at the bound."""
        return max(float(self._largest._reached), self.spent_share)

    @property
    def spent_share(self) -> float:
        """The share of the evaluations or of the time that is spent, whichever is larger."""
        shares = [0.0]
        if self.evaluations is not None:
            shares.append(self.spent / self.evaluations)
        if self.seconds is not None:
            shares.append((self._clock() - self._start) / self.seconds)
        return max(shares)

    def metered(self, evaluate: Evaluator) -> Evaluator:
        """An evaluator whose evaluations count against this budget; it does not refuse any.

        No evaluation counts twice: if this budget, or one of which it is a part, already meters `evaluate`, this budget
        meters it instead.
        """
        if isinstance(evaluate, Metered) and evaluate.budget in self._family:
            evaluate = evaluate.evaluate
        return Metered(evaluate, self)

    def pay(self, evaluations: int) -> None:
        """Counts evaluations, in this budget and in those of which it is a part."""
        for budget in self._family:
            budget.spent += evaluations

    @property
    def bound_ns(self) -> int | None:
        """The largest lower bound on the step time that is proved so far; None if there is none."""
        return self._largest._bound_ns

    def prove(self, bound_ns: int) -> None:
        """Raises the bound to one that a search has proved, for all budgets that share it."""
        self._largest._bound_ns = max(self.bound_ns or 0, bound_ns)

    def notice(self, results: Iterable[StepResult]) -> None:
        """Ends all budgets that share the bound if a step is feasible and takes no longer than the bound."""
        if self.bound_ns is not None:
            self._largest._reached |= any(
                each.feasible_ns is not None and each.feasible_ns <= self.bound_ns for each in results
            )

    def anew(self, bound_ns: int | None = None) -> Budget:
        """A budget like this one that begins now: what was done before it does not count. It may have its own bound."""
        bound_ns = self.bound_ns if bound_ns is None else bound_ns
        return Budget(evaluations=self.evaluations, seconds=self.seconds, clock=self._clock, bound_ns=bound_ns)

    def left(self, share: float) -> Budget:
        """A part with a share of the rest, and at least one evaluation."""
        evaluations = None if self.evaluations is None else max(1, int(share * (self.evaluations - self.spent)))
        seconds = None if self.seconds_left is None else max(1e-9, share * self.seconds_left)
        return self._part(evaluations, seconds)

    def until(self, share: float) -> Budget:
        """A part that starts with this budget and ends when `share` of this budget is used."""
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
        """The number of evaluations that the budget still allows, at most `wanted`."""
        if self.used >= 1:
            return 0
        return wanted if self.evaluations is None else min(wanted, self.evaluations - self.spent)


class Metered:
    """An `Evaluator` that reports its evaluations and steps to a budget. `Budget.metered` makes it."""

    def __init__(self, evaluate: Evaluator, budget: Budget) -> None:
        self.evaluate, self.budget = evaluate, budget

    def __call__(
        self, problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
    ) -> tuple[StepResult, ...]:
        self.budget.pay(len(placements))
        results = self.evaluate(problem, placements, timeline=timeline, limit_ns=limit_ns)
        self.budget.notice(results)
        return results
