"""A placed PyTorch step on CPU devices: each is a process of one thread on its own core; they share memory."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any

import numpy as np
from jaxtyping import Int64

from gnnplace.cluster import Device
from gnnplace.costs.measured import LinkSample
from gnnplace.execution.torch.device import DeviceMemory, OneHost, TorchDevice, span, timed
from gnnplace.execution.torch.lanes import NoStream
from gnnplace.execution.torch.program import DeviceProgram, Message, programs
from gnnplace.execution.torch.shared_memory import SharedMemory
from gnnplace.execution.torch.slots import Slots, lifetimes, slots
from gnnplace.execution.torch.values import Held
from gnnplace.execution.workload import Allocation, ExecutionPlan, peak_bytes
from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.isolation.linux import lift_memory_limit, without_memory_limit
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.isolation.worker import Worker, answers, usable_cores

# a process' own memory, and that of each op; a step may exceed its device by as much until its peak is measured
OVERHEAD_BYTES, OVERHEAD_OP_BYTES = 2**25, 2**14


class TorchProcesses(OneHost):
    """A `RunningStep` of a plan whose devices are all of kind `cpu`.

    `held` stays unchanged: each process has its own copy. Raises MeasurementError as `check_cores` and `memory_limits`.
    """

    def __init__(self, step: TracedStep, plan: ExecutionPlan, held: Held) -> None:
        self._cores, self._num_ops = usable_cores()[: len(plan.devices)], step.graph.num_ops
        check_cores(plan.devices, self._cores)
        device_programs = programs(step, plan)
        sent = [what for program in device_programs for what in program.sent]
        self._messages = [what for what in sent if isinstance(what, Message)]
        message_slots, self._lifetimes = slots(device_programs), lifetimes(device_programs)
        limits = memory_limits(plan.devices, message_slots, self._num_ops)
        num_flags = 1 + max((what.number for what in sent), default=-1)
        shared = SharedMemory(message_slots, num_flags, len(device_programs))
        self._workers: list[Worker] = []
        try:
            for program, device, core, limit in zip(device_programs, plan.devices, self._cores, limits, strict=True):
                process = _DeviceProcess(program, shared, held, self._num_ops)
                self._workers.append(Worker(device.name, core, limit, process.serve))
        except BaseException:
            self.close()
            raise

    def peak_memory_bytes(self) -> list[int]:
        """Runs a step, two on the first call. Returns each device's peak: variables, buffers, workspace, live messages.

        A device reserves more: messages have their slots for the whole step (slots.py).
        """
        memories: list[DeviceMemory] = self._ask("memory")
        messages: list[list[Allocation]] = [[] for _ in memories]
        for life in self._lifetimes:
            starts, ends = zip(*(span(memories[device].times, mark) for device, mark in life.sendings), strict=True)
            used = [span(memories[life.holder].times, mark)[1] for mark in life.uses]
            messages[life.holder] += [(min(starts), life.bytes), (max([*ends, *used]), -life.bytes)]
        return [
            memory.held_bytes + peak_bytes([*memory.allocations, *received])
            for memory, received in zip(memories, messages, strict=True)
        ]

    def op_memory(self) -> Int64[np.ndarray, " ops"]:
        """Runs a step and returns the peak of the bytes that each op allocated: its outputs and its workspace."""
        return np.max(self._ask("op_memory"), axis=0)

    def messages(self, steps: int) -> list[LinkSample]:
        """Runs steps, at least 1, and times every message in them (see `timed`)."""
        return timed(self._messages, self._ask("op_times", steps))

    def described(self) -> list[str]:
        """The core of each device."""
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
            self.close()  # else a device would wait for the failed one for ever
            raise


def check_cores(devices: Sequence[Device], cores: Sequence[int]) -> None:
    """Raises MeasurementError(unsupported) if there are fewer cores than devices."""
    if len(devices) > len(cores):
        raise MeasurementError(
            "unsupported", f"{len(devices)} CPU devices need as many cores, and there are {len(cores)}"
        )


def memory_limits(devices: Sequence[Device], slots: Slots, num_ops: int) -> list[int]:
    """The memory limit of each device's process: the device's memory and the process' own.

    No limit of a process counts the arena of the messages that it receives, which is shared memory. An arena reserves
    its slots for the whole step, so it may exceed the peak of its device. Raises MeasurementError(out_of_memory) if the
    arena alone exceeds the limit.
    """
    overhead = OVERHEAD_BYTES + OVERHEAD_OP_BYTES * num_ops
    for device, received in zip(devices, slots.arena_bytes, strict=True):
        if received > device.memory_bytes + overhead:
            reason = f"{device.name} receives {received} bytes in a step, and has {device.memory_bytes}"
            raise MeasurementError("out_of_memory", reason)
    return [device.memory_bytes + overhead for device in devices]


class _DeviceProcess:
    """The process of one device."""

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
                lift_memory_limit()  # the profiler's memory doesn't count
            answer = getattr(device, what)(*arguments)
            with without_memory_limit():  # nor do the copies of variables that are sent
                connection.send(answer)

    def _meet(self, step: int) -> None:
        self._shared.step = step
        self._shared.meet(self._program.device)
