"""A placed PyTorch step on CPU devices: each is a process on its own core with one thread, and they meet in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from time import monotonic_ns
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnplace.execution.measurement import MeasurementError
from gnnplace.execution.pinned import Worker, answers, lift_memory_limit, usable_cores
from gnnplace.execution.shared_memory import SharedMemory
from gnnplace.execution.slots import slots
from gnnplace.execution.torch_code import compiled
from gnnplace.execution.torch_memory import peak_bytes
from gnnplace.execution.torch_program import Program, Send, programs
from gnnplace.execution.torch_values import Node
from gnnplace.execution.workload import OpTimes, Outputs, Plan
from gnnplace.frontends.torch import TracedStep

CPU = torch.device("cpu")
OVERHEAD_BYTES, OVERHEAD_OP_BYTES = 2**25, 2**14  # the process' own; a step that exceeds its device by so little is told by its peak


class TorchProcesses:
    """A `PlacedStep` of a plan whose devices are all of kind `cpu`.

    `held` are the values of the nodes that exist before the step (never changed here: each process has its own copy), `names` what
    those that a step changes are called, `loss` the node of the loss. Raises MeasurementError(unsupported) where there are fewer
    cores than devices.
    """

    def __init__(self, step: TracedStep, plan: Plan, held: Mapping[Node, Tensor], names: Mapping[Node, str], loss: Node) -> None:
        cores, self._num_ops = usable_cores(), step.graph.num_ops
        if len(plan.devices) > len(cores):
            raise MeasurementError("unsupported", f"{len(plan.devices)} CPU devices need as many cores, and there are {len(cores)}")
        written = programs(step, plan)
        sent = [line.what.number for program in written for line in program.instructions if isinstance(line, Send)]
        placed = slots(written)
        shared = SharedMemory(placed, max(sent, default=-1) + 1, len(written))
        self._workers: list[Worker] = []
        for program, device, core in zip(written, plan.devices, cores, strict=False):
            received = placed.arena_bytes[program.device]  # memory that all processes share and no limit of this one counts
            life = _Device(program, shared, received, held, names, loss, self._num_ops)
            memory_bytes = device.memory_bytes - received + OVERHEAD_BYTES + OVERHEAD_OP_BYTES * self._num_ops
            self._workers.append(Worker(device.name, core, memory_bytes, life.serve))

    def run(self, steps: int) -> list[int]:
        """Runs steps; the nanoseconds of each."""
        starts, ends = zip(*self._ask("run", steps), strict=True)
        return (np.max(ends, axis=0) - np.min(starts, axis=0)).tolist()

    def outputs(self) -> Outputs:
        """The losses so far and the variables now."""
        found = self._ask("outputs")
        losses = next((losses for losses, _ in found if losses), ())
        return Outputs(losses, {name: value for _, variables in found for name, value in variables.items()})

    def op_times(self, steps: int) -> list[OpTimes]:
        """Runs steps and times every op in them."""
        parts = self._ask("op_times", steps)
        return [_merged([part[step] for part in parts], self._num_ops) for step in range(steps)]

    def peak_memory_bytes(self) -> list[int]:
        """Runs a step and returns the most that each device held in it."""
        return self._ask("peak_memory")

    def close(self) -> None:
        """Ends the processes."""
        for worker in self._workers:
            worker.kill()

    def _ask(self, *request: Any) -> list[Any]:
        for worker in self._workers:
            worker.send(request)
        try:
            return answers(self._workers)
        except BaseException:
            self.close()  # a device that waits for a failed one would wait for ever
            raise


class _Device:
    """The life of one device's process."""

    def __init__(
        self,
        program: Program,
        shared: SharedMemory,
        arena_bytes: int,
        held: Mapping[Node, Tensor],
        names: Mapping[Node, str],
        loss: Node,
        num_ops: int,
    ) -> None:
        self._program, self._shared, self._arena_bytes, self._loss, self._num_ops = program, shared, arena_bytes, loss, num_ops
        self._held = {node: held[node] for node in program.held}
        self._names = {node: names[node] for node in program.held if node in names}
        self._losses: list[float] = []

    def serve(self, connection: Connection) -> None:
        """Answers requests until the pipe is closed."""
        torch.set_num_threads(1)
        self._held = {node: value.detach().clone() for node, value in self._held.items()}
        step, (timed, times) = self._compiled(None), self._timed()
        while True:
            match connection.recv():
                case ("run", steps):
                    connection.send(self._run(step, steps))
                case ("outputs",):
                    connection.send((tuple(self._losses), {name: self._held[node].numpy() for node, name in self._names.items()}))
                case ("op_times", steps):
                    connection.send([self._time_ops(timed, times) for _ in range(steps)])
                case ("peak_memory",):
                    connection.send(self._peak_memory(step))
                case request:
                    raise AssertionError(request)

    def _compiled(self, times: tuple[list[int], list[int]] | None) -> Callable[[], Tensor | None]:
        return compiled(self._program, self._held, self._shared, CPU, self._loss, self._seed, times)

    def _timed(self) -> tuple[Callable[[], Tensor | None], tuple[list[int], list[int]]]:
        times = [-1] * self._num_ops, [-1] * self._num_ops
        return self._compiled(times), times

    def _run(self, step: Callable[[], Tensor | None], steps: int) -> tuple[list[int], list[int]]:
        starts, ends, shared, device = [], [], self._shared, self._program.device
        for _ in range(steps):
            shared.step += 1
            shared.meet(device)
            starts.append(monotonic_ns())
            loss = step()
            ends.append(monotonic_ns())
            if loss is not None:
                self._losses.append(loss.item())
        return starts, ends

    def _time_ops(self, timed: Callable[[], Tensor | None], times: tuple[list[int], list[int]]) -> tuple[int, np.ndarray, np.ndarray]:
        ((start,), _) = self._run(timed, 1)
        return start, np.array(times[0]), np.array(times[1])

    def _seed(self, op: int) -> None:
        torch.manual_seed(self._shared.step * self._num_ops + op)  # the same wherever the op stands

    def _peak_memory(self, step: Callable[[], Tensor | None]) -> int:
        lift_memory_limit()  # the profiler's own memory is not the step's
        held = {value.untyped_storage().data_ptr(): value.untyped_storage().nbytes() for value in self._held.values()}
        return peak_bytes(lambda: self._run(step, 1)) + sum(held.values()) + self._arena_bytes


def _merged(parts: Sequence[tuple[int, np.ndarray, np.ndarray]], num_ops: int) -> OpTimes:
    """The times of all devices since the first began; the clock is one for all processes of a host."""
    first = min(start for start, _, _ in parts)
    starts, ends = (np.full(num_ops, -1, dtype=np.int64) for _ in range(2))
    for _, started, ended in parts:
        ran = started >= 0
        starts[ran], ends[ran] = started[ran] - first, ended[ran] - first
    return OpTimes(starts, ends)
