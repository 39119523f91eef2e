"""Planners without one of several equal devices: what they would propose if it was not there.

Many planners spread work over all devices, so one more may make what they propose worse. Asked without it as well, they
propose what they proposed before there was one more.
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
    """The problem without the last one of each class of equal devices, by
    that device's name, where two accelerators are left.
    """
    every = np.arange(problem.num_devices, dtype=np.int32)
    last = [devices[-1] for devices in equal_devices(problem) if len(devices) > 1]
    candidates = {
        problem.cluster.device_names[device]: on_devices(problem, np.delete(every, device)) for device in last
    }
    return {name: part for name, part in candidates.items() if len(part.problem.cluster.accelerators) > 1}


def on_part(plan: Planner, part: Constrained) -> Planner:
    """A planner of the whole problem that runs `plan` on the devices of `part` alone."""
    return lambda problem: part.of_whole(plan(part.problem))


class OnPart:
    """An evaluator of a part of a problem's devices: placements are
    judged, and counted, as placements of the whole problem.
    """

    def __init__(self, evaluate: Rationed, part: Constrained) -> None:
        self._evaluate, self._part = evaluate, part

    @property
    def left(self) -> int | None:
        """What is left of the ration."""
        return self._evaluate.left

    @left.setter
    def left(self, left: int | None) -> None:
        self._evaluate.left = left

    def __call__(
        self, problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
    ) -> tuple[StepResult, ...]:
        of_whole = [self._part.of_whole(placement) for placement in placements]
        return tuple(
            map(self._on_part, self._evaluate(self._part.whole, of_whole, timeline=timeline, limit_ns=limit_ns))
        )

    def _on_part(self, result: StepResult) -> StepResult:
        """A result as the part's problem scores it; channels and timeline stay those of the whole."""
        peak, device = result.peak_memory_bytes, self._part.device
        return replace(result, peak_memory_bytes=None if peak is None else peak[device], busy_ns=result.busy_ns[device])
