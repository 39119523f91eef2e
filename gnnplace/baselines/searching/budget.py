"""How long a search may go on: so many evaluations, or so long; under the first of them alone results are the same on every machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, StepResult


class Budget:
    """What may be spent, and what is left of it, from when it is made; `clock` tells the seconds, those on a wall unless given.

    Raises ValueError where it is neither evaluations nor seconds, or nothing at all.
    """

    def __init__(
        self, *, evaluations: int | None = None, seconds: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if evaluations is None and seconds is None:
            raise ValueError("budget: neither evaluations nor seconds; a search needs an end")
        for name, value in (("evaluations", evaluations), ("seconds", seconds)):
            if value is not None and not value > 0:
                raise ValueError(f"budget: {value} {name}; it must be more than 0")
        self.evaluations, self.seconds = evaluations, seconds
        self.spent, self._start, self._clock = 0, clock(), clock

    @property
    def used(self) -> float:
        """The share that is gone, 1 or more at the end: of evaluations or of time, whichever is further."""
        shares = [0.0]
        if self.evaluations is not None:
            shares.append(self.spent / self.evaluations)
        if self.seconds is not None:
            shares.append((self._clock() - self._start) / self.seconds)
        return max(shares)

    def left(self, share: float) -> Budget:
        """A budget of a share of what is left, an evaluation at least, that begins now; its user counts here what is spent of it."""
        evaluations = None if self.evaluations is None else max(1, int(share * (self.evaluations - self.spent)))
        seconds = None if self.seconds_left is None else max(1e-9, share * self.seconds_left)
        return Budget(evaluations=evaluations, seconds=seconds, clock=self._clock)

    def until(self, share: float) -> Budget:
        """A budget that began with this one and ends when a share of it is gone; its user counts here what is spent of it."""
        evaluations = None if self.evaluations is None else max(1, int(share * self.evaluations))
        budget = Budget(evaluations=evaluations, seconds=None if self.seconds is None else share * self.seconds, clock=self._clock)
        budget.spent, budget._start = self.spent, self._start
        return budget

    @property
    def seconds_left(self) -> float | None:
        """Until the end of the time, negative after it; None where evaluations alone count."""
        return None if self.seconds is None else self._start + self.seconds - self._clock()

    def allows(self, wanted: int) -> int:
        """How many of the evaluations that somebody wants there may be now."""
        if self.used >= 1:
            return 0
        return wanted if self.evaluations is None else min(wanted, self.evaluations - self.spent)


class Counted:
    """An `Evaluator` that counts what it evaluates against a budget, which it does not enforce."""

    def __init__(self, evaluate: Evaluator, budget: Budget) -> None:
        self._evaluate, self._budget = evaluate, budget

    def __call__(
        self, problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
    ) -> tuple[StepResult, ...]:
        self._budget.spent += len(placements)
        return self._evaluate(problem, placements, timeline=timeline, limit_ns=limit_ns)
