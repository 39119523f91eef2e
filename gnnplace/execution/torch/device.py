"""One device's part of a placed PyTorch step: its compiled program, variables and state, and its runs and times.

Devices are processes, threads or ranks. These differ in their transport, in how devices meet before a step, and in the
lane that runs their ops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from threading import Lock
from time import monotonic_ns, time_ns
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from gnnplace.costs.measured import LinkSample
from gnnplace.execution.torch.code import Times, Transport, compiled
from gnnplace.execution.torch.lanes import Lane
from gnnplace.execution.torch.program import DeviceProgram, Message
from gnnplace.execution.torch.values import Held, Node
from gnnplace.execution.workload import Allocation, OpTimes, Outputs, peak_bytes

DeviceOutputs = tuple[list[dict[int, float]], dict[str, np.ndarray]]


class DeviceTimes(NamedTuple):
    """The start and end of the ops and messages of one device in one step, in ns since the device began; -1 for others.

    `Message.mark` is the index of a message. `began` is a time of the host's clock.
    """

    began: int
    start_ns: np.ndarray
    end_ns: np.ndarray


class DeviceMemory(NamedTuple):
    """The bytes that a device held before a step, its own allocations in the step, and the times of its ops."""

    held_bytes: int
    allocations: list[Allocation]
    times: DeviceTimes


class TorchDevice:
    """One device. `meet(step)` returns when all devices may start that step, counted from 1.

    Devices of one process share their generators of random numbers; the lock `drawing` keeps their random ops apart.
    """

    def __init__(
        self,
        program: DeviceProgram,
        held: Held,
        lane: Lane,
        transport: Transport,
        meet: Callable[[int], object],
        num_ops: int,
        drawing: Lock,
    ) -> None:
        self._program, self._lane, self._transport, self._meet, self._num_ops = program, lane, transport, meet, num_ops
        self._drawing, self._draws = drawing, held.draws
        self._held = {
            node: held.values[node].detach().to(lane.device, copy=held.results is None) for node in program.held
        }
        self._names = {node: held.names[node] for node in program.held if node in held.names}
        self._kept: dict[Node, Callable[[Tensor], object]] = {
            node: place.copy_ for node, place in (held.results or {}).items()
        }
        self._kept |= {node: partial(self._keep, number) for number, node in enumerate(held.losses)}
        self._loss: dict[int, Tensor] = {}
        self._losses: list[dict[int, float]] = []
        self._number = 0
        self._step = self._compiled(None)
        self._timed: tuple[Callable[[], None], Times] | None = None

    def run(self, steps: int) -> tuple[list[int], list[int]]:
        """Runs steps. Returns the start and end of each on this device, by the host's clock."""
        times = [self._run(self._step) for _ in range(steps)]
        return [start for start, _ in times], [end for _, end in times]

    def outputs(self) -> DeviceOutputs:
        """The losses that the device has computed in each step so far, by their numbers, and its variables."""
        return self._losses, {name: self._held[node].cpu().numpy() for node, name in self._names.items()}

    def op_times(self, steps: int) -> list[DeviceTimes]:
        """Runs steps and times every op in them."""
        if self._timed is None:
            size = self._num_ops + self._program.num_messages
            times: Times = [None] * size, [None] * size
            self._timed = self._compiled(times), times
        return [self._time_ops(*self._timed) for _ in range(steps)]

    def peak_memory(self, received_bytes: int) -> int:
        """Runs a step and returns the peak memory of a CPU device: allocations, held values and received messages."""
        return peak_bytes(allocations(lambda: self.run(1))) + self.held_bytes() + received_bytes

    def memory(self) -> DeviceMemory:
        """Runs a step with its ops timed and returns what a CPU device allocates in it, and when.

        The allocations are those of one earlier step: recording makes a step longer, and messages would meet other ops.
        Their times are moved to the step of this call.
        """
        events, recorded = self._recorded
        (times,) = self.op_times(1)
        moved = np.interp([time_ns for time_ns, _ in events], _marks(recorded), _marks(times))
        allocated = [(round(time_ns), size) for time_ns, (_, size) in zip(moved, events, strict=True)]
        return DeviceMemory(self.held_bytes(), allocated, times)

    def op_memory(self) -> list[int]:
        """The peak of the bytes that each op of the graph allocates on a CPU device: its outputs and its workspace."""
        events, times = self._recorded
        allocated_at = np.array([time_ns for time_ns, _ in events], dtype=np.int64)
        peaks = [0] * self._num_ops
        for op in np.flatnonzero(times.start_ns[: self._num_ops] >= 0).tolist():
            began, ended = span(times, op)
            first, after = np.searchsorted(allocated_at, began), np.searchsorted(allocated_at, ended, side="right")
            peaks[op] = peak_bytes(events[first:after])
        return peaks

    @cached_property
    def _recorded(self) -> tuple[list[Allocation], DeviceTimes]:
        """Runs a step and returns the allocations of a CPU device in it, and the times of its ops."""
        times: list[DeviceTimes] = []
        events = allocations(lambda: times.extend(self.op_times(1)))
        return sorted(events), times[0]

    def held_bytes(self) -> int:
        """The bytes of the values that exist before the step; a storage counts once."""
        storages = [value.untyped_storage() for value in self._held.values()]
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

    def _compiled(self, times: Times | None) -> Callable[[], None]:
        lane, now = self._lane, self._lane.now
        return compiled(self._program, self._held, self._transport, lane.device, self._kept, self._seeded, times, now)

    def _run(self, step: Callable[[], None]) -> tuple[int, int]:
        self._begin()
        start = monotonic_ns()
        step()
        self._lane.synchronize()
        end = monotonic_ns()
        self._note_loss()
        return start, end

    def _time_ops(self, step: Callable[[], None], times: Times) -> DeviceTimes:
        self._begin()
        since, began = self._lane.now(), monotonic_ns()
        step()
        self._lane.synchronize()
        self._note_loss()
        start_ns, end_ns = (
            np.array([-1 if mark is None else self._lane.elapsed_ns(since, mark) for mark in marks]) for marks in times
        )
        return DeviceTimes(began, start_ns, end_ns)

    def _begin(self) -> None:
        self._number += 1
        self._meet(self._number)

    def _keep(self, number: int, loss: Tensor) -> None:
        self._loss[number] = loss.clone()

    def _note_loss(self) -> None:
        self._losses.append({number: loss.item() for number, loss in self._loss.items()})

    @contextmanager
    def _seeded(self, op: int) -> Iterator[None]:
        """A context for a random op: the generator has the op's seed, and no other device uses it."""
        with self._drawing:
            self._lane.seed(seed(self._draws + self._number, op, self._num_ops))
            yield


class OneHost(ABC):
    """The devices of a placed step on one host, whose clock they share: their reports, put together.

    On a virtual machine the clocks of two cores may differ by some 50 us for the length of a step: trust medians over
    steps.
    """

    _num_ops: int

    def run(self, steps: int) -> list[int]:
        """Runs steps. Returns the ns of each, from the start of the first device to the end of the last."""
        starts, ends = zip(*self._ask("run", steps), strict=True)
        return (np.max(ends, axis=0) - np.min(starts, axis=0)).tolist()

    def outputs(self) -> Outputs:
        """The losses so far and the variables now."""
        return joined(self._ask("outputs"))

    def op_times(self, steps: int) -> list[OpTimes]:
        """Runs steps and times every op. On a GPU events on its stream time it; waiting for the launch counts."""
        parts = self._ask("op_times", steps)
        return [merged([part[step] for part in parts], self._num_ops) for step in range(steps)]

    @abstractmethod
    def _ask(self, what: str, *arguments: Any) -> list[Any]:
        """Calls a method of `TorchDevice` on all devices at the same time. Returns the result of each."""


def seed(step: int, op: int, num_ops: int) -> int:
    """The random seed of an op in a step; it does not depend on the device."""
    return step * num_ops + op


def received_bytes(program: DeviceProgram) -> int:
    """The bytes of all messages that a device receives, each in its own buffer."""
    return sum(message.bytes for message in program.received_messages)


def merged(parts: Sequence[DeviceTimes], num_ops: int) -> OpTimes:
    """The op times of all devices since the first began; the devices share a clock."""
    first = min(part.began for part in parts)
    starts, ends = (np.full(num_ops, -1, dtype=np.int64) for _ in range(2))
    for began, started, ended in parts:
        ran = np.flatnonzero(started[:num_ops] >= 0)
        starts[ran], ends[ran] = started[ran] + began - first, ended[ran] + began - first
    return OpTimes(starts, ends)


def span(times: DeviceTimes, mark: int) -> tuple[int, int]:
    """The start and end of an op, or of a message's sending or receipt on this device, by the host's clock."""
    return times.began + int(times.start_ns[mark]), times.began + int(times.end_ns[mark])


def _marks(times: DeviceTimes) -> np.ndarray:
    """The sorted times at which the step, its ops and its messages began and ended on this device.

    They follow the program, so they are in the same order in every step.
    """
    ran = times.start_ns >= 0
    return times.began + np.sort(np.concatenate([[0], times.start_ns[ran], times.end_ns[ran]]))


def timed(messages: Sequence[Message], parts: Sequence[Sequence[DeviceTimes]]) -> list[LinkSample]:
    """How long messages took, from the times of each device in each step; the devices share a clock.

    A message occupies its sender for the median over steps. It arrives later by the latency: the median over the
    messages that somebody was waiting for.
    """
    occupied, latencies = [], []
    for message in messages:
        sent, received = (
            np.array([span(times, message.mark) for times in parts[end]]) for end in (message.src, message.dst)
        )
        occupied.append(round(float(np.median(sent[:, 1] - sent[:, 0]))))
        latencies.append((received[:, 1] - sent[:, 1])[received[:, 0] < sent[:, 1]])
    latency = round(float(np.median(np.concatenate(latencies)))) if any(map(len, latencies)) else 0
    return [LinkSample(message.bytes, busy, busy + latency) for message, busy in zip(messages, occupied, strict=True)]


def joined(parts: Sequence[DeviceOutputs]) -> Outputs:
    """The loss of each step, the sum of those of its micro-batches, and the variables of all devices."""
    steps = zip(*(losses for losses, _ in parts), strict=True)
    losses = [dict(pair for losses in step for pair in losses.items()) for step in steps]
    variables = {name: value for _, variables in parts for name, value in variables.items()}
    return Outputs(tuple(sum(step[number] for number in sorted(step)) for step in losses), variables)


def allocations(run: Callable[[], object]) -> list[Allocation]:
    """The allocations and frees of this thread during `run()`."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    since = time_ns() - monotonic_ns()
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    return [(event.start_ns() - since, event.nbytes()) for event in events]


def gpu_growth(gpus: Sequence[int], run: Callable[[], object]) -> list[int]:
    """How much the peak of allocated bytes on each GPU during `run()` exceeds the bytes before it.

    `run()` ends with the GPUs synchronised. Bytes count as free once their last use is queued, in program order.
    """
    before = [torch.cuda.memory_allocated(gpu) for gpu in gpus]
    for gpu in gpus:
        torch.cuda.reset_peak_memory_stats(gpu)
    run()
    return [torch.cuda.max_memory_allocated(gpu) - bytes_before for gpu, bytes_before in zip(gpus, before, strict=True)]
