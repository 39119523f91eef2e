"""The best placements so far, one a problem: kept in memory, and written to disk whenever they improve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from gnnplace.placement import Placement
from gnnplace.result import StepResult
from gnnplace.training.update import processes

Origin = Literal["sample", "greedy", "measured again"]
Choices = Sequence[Mapping[str, Tensor]]  # of each step of an episode of one sample, by name


@dataclass(frozen=True, eq=False)
class Best:
    """A feasible placement, its step time and origin, and the policy's choices that made it, if known."""

    placement: Placement
    step_time_ns: int
    origin: Origin
    choices: Choices | None = None


Write = Callable[[int, Placement, StepResult, Origin], None]  # of the problem's number; must be atomic


class BestPlacements:
    """The fastest feasible placement of each of `num_problems` problems; `write` is called with each improvement.

    `on_disk` holds the step times of the placements that an interrupted run wrote; slower ones don't replace them.
    """

    def __init__(self, num_problems: int, write: Write, on_disk: tuple[int | None, ...] | None = None) -> None:
        self.by_problem: list[Best | None] = [None] * num_problems
        self._write = write
        self._on_disk = list(on_disk or [None] * num_problems)

    def offer(
        self, problem: int, placement: Placement, result: StepResult, origin: Origin, choices: Choices | None = None
    ) -> bool:
        """Whether the placement is feasible and faster than the best so far; if so it replaces that."""
        time, best = result.feasible_ns, self.by_problem[problem]
        if time is None or (best is not None and time >= best.step_time_ns):
            return False
        self.by_problem[problem] = Best(placement, time, origin, choices)
        written = self._on_disk[problem]
        if written is None or time < written:
            self._write(problem, placement, result, origin)
            self._on_disk[problem] = time
        return True

    def offer_all(
        self, problem: int, placement: Placement, result: StepResult, origin: Origin, choices: Choices
    ) -> bool:
        """`offer` of the fastest placement of all processes of a run; all of them call it and keep the same."""
        never = torch.iinfo(torch.int64).max
        time = torch.tensor([never if result.feasible_ns is None else result.feasible_ns])
        if processes.number() > 1:
            owner = int(processes.gathered(time).argmin())
            placement, result, choices = processes.sent_by(owner, (placement, result, choices))
        return self.offer(problem, placement, result, origin, choices)

    def state(self) -> list[dict[str, Any] | None]:
        """The best placements as plain data and tensors, for a checkpoint."""
        return [None if best is None else _document(best) for best in self.by_problem]

    def load_state(self, state: Sequence[dict[str, Any] | None]) -> None:
        """Restores what `state` returned."""
        self.by_problem = [None if document is None else _best(document) for document in state]

    def settle(self, problem: int, placement: Placement, result: StepResult) -> None:
        """Makes this feasible placement the best one: later measurements chose it, however fast another seemed."""
        assert result.feasible_ns is not None
        self.by_problem[problem] = Best(placement, result.feasible_ns, "measured again")
        self._write(problem, placement, result, "measured again")
        self._on_disk[problem] = result.feasible_ns


def _document(best: Best) -> dict[str, Any]:
    placed = best.placement
    columns = {"device": placed.device, "priority": placed.priority, "fusion": placed.fusion}
    return {
        **{name: None if column is None else torch.from_numpy(column.copy()) for name, column in columns.items()},
        "schedule": placed.schedule,
        "step_time_ns": best.step_time_ns,
        "origin": best.origin,
        "choices": None if best.choices is None else [dict(step) for step in best.choices],
    }


def _best(document: dict[str, Any]) -> Best:
    priority, fusion = (
        None if (column := document.get(name)) is None else column.numpy() for name in ("priority", "fusion")
    )
    placement = Placement(document["device"].numpy(), document["schedule"], priority, fusion)
    return Best(placement, document["step_time_ns"], document["origin"], document["choices"])
