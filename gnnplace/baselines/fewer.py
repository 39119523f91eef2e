"""Planners for a problem without one of several equal devices.

Many planners spread work over all devices, so one device more may make their placements worse. If they also plan for
the problem without that device, the best of both is never worse than before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gnnplace.baselines.cp_sat.symmetry import equal_devices
from gnnplace.baselines.searching.rations import Rationed
from gnnplace.constraints import Constrained, on_devices
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Planner, StepResult


def parts(problem: Problem) -> dict[str, Constrained]:
    """The problem without the last device of each class of equal devices, by the name of that device.

    A class is left out if fewer than two accelerators would remain.
    """
    every = np.arange(problem.num_devices, dtype=np.int32)
    last = [devices[-1] for devices in equal_devices(problem) if len(devices) > 1]
    candidates = {
        problem.cluster.device_names[device]: on_devices(problem, np.delete(every, device)) for device in last
    }
    return {name: part for name, part in candidates.items() if len(part.problem.cluster.accelerators) > 1}


def on_part(plan: Planner, part: Constrained) -> Planner:
    """A planner of the whole problem that runs `plan` on the devices of `part` only."""
    return lambda problem: part.of_whole(plan(part.problem))


class OnPart:
    """An evaluator for a part of a problem's devices. It evaluates placements as placements of the whole problem."""

    def __init__(self, evaluate: Rationed, part: Constrained) -> None:
        self._evaluate, self._part = evaluate, part

    @property
    def left(self) -> int | None:
        """The number of evaluations left in the ration."""
        return self._evaluate.left

    @left.setter
    def left(self, left: int | None) -> None:
        self._evaluate.left = left

    def __call__(
        self, problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
    ) -> tuple[StepResult, ...]:
        whole = [self._part.of_whole(placement) for placement in placements]
        results = self._evaluate(self._part.whole, whole, timeline=timeline, limit_ns=limit_ns)
        return tuple(map(self._on_part, results))

    def _on_part(self, result: StepResult) -> StepResult:
        """The result for the devices of the part; channels and timeline remain those of the whole problem."""
        peak, device = result.peak_memory_bytes, self._part.device
        return replace(result, peak_memory_bytes=None if peak is None else peak[device], busy_ns=result.busy_ns[device])
