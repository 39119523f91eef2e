"""A placed PyTorch step on GPUs, or on GPUs and CPU devices: threads of this process feed them over CUDA streams.

The k-th GPU of the plan is cuda:k, counted round: several logical devices may share a GPU, each with its stream. This
process can't be a fork: PyTorch's autograd looked for GPUs when the step was traced, and after that neither CUDA nor a
backward pass works in a fork. So the devices run in the host itself (host.py), which was not forked and ends with them.

All devices may also be CPU devices: the same threads without streams. That tests programs and hand-over without a GPU.
It can't time CPU devices, because Python runs one thread at a time; processes.py does.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from threading import Barrier, BrokenBarrierError, Lock
from typing import Any

import torch

from gnnplace.execution.torch.device import OneHost, TorchDevice, gpu_growth, received_bytes
from gnnplace.execution.torch.lanes import Lane, lanes
from gnnplace.execution.torch.program import programs
from gnnplace.execution.torch.streams import AbandonedError, Streams
from gnnplace.execution.torch.values import Held
from gnnplace.execution.workload import ExecutionPlan
from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.isolation.worker import failure


class TorchThreads(OneHost):
    """A `RunningStep` of a plan of GPUs and CPU devices.

    The devices of a GPU may use all of its memory, whatever the cluster says.
    """

    def __init__(self, step: TracedStep, plan: ExecutionPlan, held: Held) -> None:
        device_programs, self._num_ops = programs(step, plan), step.graph.num_ops
        self._received = [received_bytes(program) for program in device_programs]
        self._lanes = lanes([device.kind for device in plan.devices])
        self._transport, self._meeting, drawing = Streams(self._lanes), Barrier(len(device_programs)), Lock()
        self._feeders = [
            ThreadPoolExecutor(1, device.name, lane.enter)
            for device, lane in zip(plan.devices, self._lanes, strict=True)
        ]
        self._devices: list[TorchDevice] = []
        shared = (self._transport, lambda step: self._meeting.wait(), self._num_ops, drawing)
        calls = [
            partial(TorchDevice, program, held, lane, *shared)
            for program, lane in zip(device_programs, self._lanes, strict=True)
        ]
        self._devices = self._together(calls)

    def peak_memory_bytes(self) -> list[int]:
        """Each device's peak memory in a step; of a GPU that of all its logical devices, without cuBLAS's workspace."""
        gpus = sorted({lane.device.index for lane in self._lanes if lane.stream is not None})
        peaks = dict(zip(gpus, gpu_growth(gpus, lambda: self.run(1)), strict=True)) if gpus else {}
        for device, lane in zip(self._devices, self._lanes, strict=True):
            if lane.stream is not None:
                peaks[lane.device.index] += device.held_bytes()
        return [
            self._cpu_peak(place) if lane.stream is None else peaks[lane.device.index]
            for place, lane in enumerate(self._lanes)
        ]

    def described(self) -> list[str]:
        """The hardware of each device."""
        shares = Counter(lane.device for lane in self._lanes)
        return [_described(lane, shares[lane.device]) for lane in self._lanes]

    def close(self) -> None:
        """Ends the threads and frees the memory."""
        for feeder in self._feeders:
            feeder.shutdown()
        self._devices, self._transport = [], Streams(())
        gc.collect()  # a compiled program and its names are a reference cycle
        if any(lane.stream is not None for lane in self._lanes):
            torch.cuda.empty_cache()

    def _cpu_peak(self, place: int) -> int:
        """The peak memory of a CPU device while all devices run a step."""
        calls: list[Callable[[], object]] = [partial(device.run, 1) for device in self._devices]
        calls[place] = partial(self._devices[place].peak_memory, self._received[place])
        return self._together(calls)[place]

    def _ask(self, what: str, *arguments: Any) -> list[Any]:
        return self._together([partial(getattr(device, what), *arguments) for device in self._devices])

    def _together(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Runs each call in its device's thread. If one fails, wakes the others and closes everything."""
        gc.disable()
        try:
            futures = [feeder.submit(call) for feeder, call in zip(self._feeders, calls, strict=True)]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            if any(future.exception() for future in done):
                self._transport.abandon()
                self._meeting.abort()
            errors = [error for future in futures if (error := future.exception())]
        finally:
            gc.enable()
        if errors:
            self.close()
            raise _first(errors)
        return [future.result() for future in futures]


def _first(errors: Sequence[BaseException]) -> BaseException:
    """The first device's own error, as an outcome. Errors that only wake other threads don't count."""
    error = next(error for error in errors if not isinstance(error, AbandonedError | BrokenBarrierError))
    return failure(error) if isinstance(error, Exception) else error


def _described(lane: Lane, share: int) -> str:
    if lane.stream is None:
        return "a thread on the CPU"
    name = f"{lane.device}, {torch.cuda.get_device_name(lane.device)}"
    return name if share == 1 else f"{name}, one of {share} logical devices on it; the peak is all of theirs"
