"""The best placements found so far, one a problem: kept in memory, and written to disk whenever they improve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gnnplace.placement import Placement
from gnnplace.result import StepResult

Origin = Literal["sample", "greedy", "measured again"]


@dataclass(frozen=True, eq=False)
class Best:
    """A feasible placement, its step time and how the policy found it."""

    placement: Placement
    step_time_ns: int
    origin: Origin


Write = Callable[[int, Placement, StepResult, Origin], None]  # of the problem's number; must be atomic


class BestPlacements:
    """The fastest feasible placement of each of `num_problems` problems; `write` is called with each that is kept.

    `on_disk` holds the step times of what an interrupted run had already written: slower placements don't replace it.
    """

    def __init__(self, num_problems: int, write: Write, on_disk: tuple[int | None, ...] | None = None) -> None:
        self.found: list[Best | None] = [None] * num_problems
        self._write = write
        self._on_disk = list(on_disk or [None] * num_problems)

    def offer(self, problem: int, placement: Placement, result: StepResult, origin: Origin) -> bool:
        """Whether the placement is feasible and faster than the best so far, which it then replaces."""
        time, best = result.feasible_ns, self.found[problem]
        if time is None or (best is not None and time >= best.step_time_ns):
            return False
        self.found[problem] = Best(placement, time, origin)
        written = self._on_disk[problem]
        if written is None or time < written:
            self._write(problem, placement, result, origin)
            self._on_disk[problem] = time
        return True

    def settle(self, problem: int, placement: Placement, result: StepResult) -> None:
        """The best is this feasible one, which later measurements have chosen, however fast another once seemed."""
        assert result.feasible_ns is not None
        self.found[problem] = Best(placement, result.feasible_ns, "measured again")
        self._write(problem, placement, result, "measured again")
        self._on_disk[problem] = result.feasible_ns
