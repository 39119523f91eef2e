"""A workload whose steps take what a formula says, so that what is made of measurements can be tested bit by bit.

It is loaded in a real host by `fake_workload:load`, with a text `FOLDER:name`; each line of FOLDER/requests says what was asked of it.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
from support.graphs import chains

from gnnplace.execution.workload import ExecutionPlan, OpTimes, Outputs
from gnnplace.graph import ComputationGraph
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.schedules.in_order import in_order
from gnnplace.transformations.parallelism import Parallelism

CHAINS = chains(2, 3, 2)
STEP_NS = 1_000_000


class Fake:
    """Six ops. The name says how it fails: `fragile` is out of memory with op 0 on device 1, errs with op 4 alone there, and dies with
    op 3 alone there.
    """

    graph = CHAINS.graph

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._log("load")

    def start(self, plan: ExecutionPlan) -> FakeStep:
        self._log("start")
        device = plan.device.tolist()
        if self._name == "foreign":
            raise MeasurementError("unsupported", "no such devices here")
        if self._name == "fragile" and device == [0, 0, 0, 1, 0, 0]:
            os.kill(os.getpid(), signal.SIGSEGV)
        if self._name == "fragile" and device == [0, 0, 0, 0, 1, 0]:
            raise ValueError("no such value")
        if self._name == "fragile" and device[0] == 1:
            raise MeasurementError("out_of_memory", "the first op is too large for device 1")
        return FakeStep(plan)

    def as_run(self, plan: ExecutionPlan) -> ComputationGraph:
        return in_order(self.graph, plan.device, plan.order)

    def unplaced(self, steps: int, kind: str = "cpu", form: Parallelism | None = None) -> tuple[Outputs, str]:
        return Outputs((1.0,) * steps, {}), "a formula"

    def _log(self, what: str) -> None:
        with (self._folder / "requests").open("a") as file:
            file.write(what + "\n")


class FakeStep:
    """Each op lasts a millisecond on its device, and a cut costs a tenth of it."""

    def __init__(self, plan: ExecutionPlan) -> None:
        self._device, self._steps = plan.device, 0
        busy = np.bincount(plan.device, minlength=len(plan.devices))
        self._step_ns = int(busy.max()) * STEP_NS + int(np.count_nonzero(np.diff(plan.device))) * STEP_NS // 10

    def run(self, steps: int) -> list[int]:
        self._steps += steps
        return [self._step_ns + step for step in range(steps)]

    def outputs(self) -> Outputs:
        return Outputs((1.0,) * self._steps, {})

    def op_times(self, steps: int) -> list[OpTimes]:
        start = np.arange(len(self._device), dtype=np.int64)
        return [OpTimes(start, start + STEP_NS)] * steps

    def peak_memory_bytes(self) -> list[int]:
        return np.bincount(self._device, minlength=2).tolist()

    def described(self) -> list[str]:
        return ["imagined"] * 2

    def close(self) -> None:
        pass


def load(text: str, seed: int = 0) -> Fake:
    folder, _, name = text.rpartition(":")
    return Fake(Path(folder), name)


def requests(folder: Path, what: str) -> int:
    """How often something was asked for."""
    path = folder / "requests"
    return path.read_text().split().count(what) if path.exists() else 0
