"""A placed PyTorch step on CPU devices: each is a process on its own
core with one thread, and they meet in shared memory.
"""

from __future__ import annotations

from multiprocessing.connection import Connection
from threading import Lock
from typing import Any

import numpy as np
from jaxtyping import Int64

from gnnplace.costs.measured import LinkSample
from gnnplace.execution.allocations import Allocation, most
from gnnplace.execution.torch.device import DeviceMemory, OneHost, TorchDevice, span, timed
from gnnplace.execution.torch.lanes import NoStream
from gnnplace.execution.torch.program import DeviceProgram, Message, Send, programs
from gnnplace.execution.torch.shared_memory import SharedMemory
from gnnplace.execution.torch.slots import lifetimes, slots
from gnnplace.execution.torch.values import Held
from gnnplace.execution.workload import ExecutionPlan
from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.isolation.linux import lift_memory_limit, without_memory_limit
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.isolation.worker import Worker, answers, usable_cores

# the process' own; a step that exceeds its device by so little is told by its peak
OVERHEAD_BYTES, OVERHEAD_OP_BYTES = 2**25, 2**14


class TorchProcesses(OneHost):
    """A `PlacedStep` of a plan whose devices are all of kind `cpu`.

    `held` is never changed here: each process has its own copy. Raises MeasurementError: `unsupported` where there are
    fewer cores than devices, `out_of_memory` where what a device receives alone exceeds what it has and the overhead.
    """

    def __init__(self, step: TracedStep, plan: ExecutionPlan, held: Held) -> None:
        self._cores, self._num_ops = usable_cores()[: len(plan.devices)], step.graph.num_ops
        if len(plan.devices) > len(self._cores):
            raise MeasurementError(
                "unsupported", f"{len(plan.devices)} CPU devices need as many cores, and there are {len(self._cores)}"
            )
        written = programs(step, plan)
        sent = [line.what for program in written for line in program.instructions if isinstance(line, Send)]
        self._messages = [what for what in sent if isinstance(what, Message)]
        placed, self._lifetimes = slots(written), lifetimes(written)
        overhead = OVERHEAD_BYTES + OVERHEAD_OP_BYTES * self._num_ops
        limits = []
        # which all processes share and no limit of one counts
        for device, received in zip(plan.devices, placed.arena_bytes, strict=True):
            # messages have places for the whole step, but the device less at its peak
            limits.append(device.memory_bytes + overhead)
            if received > limits[-1]:
                reason = f"{device.name} receives {received} bytes in a step, and has {device.memory_bytes}"
                raise MeasurementError("out_of_memory", reason)
        shared = SharedMemory(placed, max((what.number for what in sent), default=-1) + 1, len(written))
        self._workers: list[Worker] = []
        try:
            for program, device, core, limit in zip(written, plan.devices, self._cores, limits, strict=True):
                life = _Life(program, shared, held, self._num_ops)
                self._workers.append(Worker(device.name, core, limit, life.serve))
        except BaseException:
            self.close()
            raise

    def peak_memory_bytes(self) -> list[int]:
        """Runs a step, the first time two, and returns the most that each device held: variables, buffers, workspace,
        and messages while they live.

        Their places are taken for the whole step (slots.py): what a device reserves is more.
        """
        memories: list[DeviceMemory] = self._ask("memory")
        messages: list[list[Allocation]] = [[] for _ in memories]
        for life in self._lifetimes:
            starts, ends = zip(*(span(memories[device].times, mark) for device, mark in life.sendings), strict=True)
            used = [span(memories[life.holder].times, mark)[1] for mark in life.uses]
            messages[life.holder] += [(min(starts), life.bytes), (max([*ends, *used]), -life.bytes)]
        return [
            memory.held_bytes + most([*memory.allocations, *received])
            for memory, received in zip(memories, messages, strict=True)
        ]

    def op_memory(self) -> Int64[np.ndarray, " ops"]:
        """Runs a step and returns the most bytes that each op allocated at once: its outputs and its workspace."""
        return np.max(self._ask("op_memory"), axis=0)

    def messages(self, steps: int) -> list[LinkSample]:
        """Runs steps, at least 1, and times every message in them (see `timed`)."""
        return timed(self._messages, self._ask("op_times", steps))

    def described(self) -> list[str]:
        """What each device is here."""
        return [f"a process on core {core}" for core in self._cores]

    def close(self) -> None:
        """Ends the processes."""
        for worker in self._workers:
            worker.kill()

    def _ask(self, what: str, *arguments: Any) -> list[Any]:
        for worker in self._workers:
            worker.send((what, *arguments))
        try:
            return answers(self._workers)
        except BaseException:
            self.close()  # a device that waits for a failed one would wait for ever
            raise


class _Life:
    """The life of one device's process."""

    def __init__(self, program: DeviceProgram, shared: SharedMemory, held: Held, num_ops: int) -> None:
        self._program, self._shared, self._held, self._num_ops = program, shared, held, num_ops

    def serve(self, connection: Connection) -> None:
        """Answers requests, methods of TorchDevice, until the pipe is closed."""
        lane = NoStream()
        lane.enter()
        device = TorchDevice(self._program, self._held, lane, self._shared, self._meet, self._num_ops, Lock())
        while True:
            what, *arguments = connection.recv()
            if what in ("memory", "op_memory"):
                lift_memory_limit()  # the profiler's own memory is not the step's
            answer = getattr(device, what)(*arguments)
            with without_memory_limit():  # variables are copied to be sent, which is not the step's
                connection.send(answer)

    def _meet(self, step: int) -> None:
        self._shared.step = step
        self._shared.meet(self._program.device)
