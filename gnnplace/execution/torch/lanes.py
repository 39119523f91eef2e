"""Lanes run the ops of a device: the thread itself on a CPU device, a CUDA stream on a logical device of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic_ns
from typing import Any

import torch

Stream = Any  # torch.cuda's, or a test's fake; None on a CPU device
Event = Any


class NoStream:
    """A CPU device: one thread, whose ops have ended when they return."""

    device = torch.device("cpu")
    stream: Stream = None

    def enter(self) -> None:
        """Makes the calling thread feed this device."""
        torch.set_num_threads(1)

    def synchronize(self) -> None:
        """Returns when all queued work has ended."""

    def now(self) -> int:
        """A mark in the device's work: the time."""
        return monotonic_ns()

    def elapsed_ns(self, since: Any, mark: Any) -> int:
        """The time from one mark to another."""
        return int(mark - since)

    def seed(self, value: int) -> None:
        """Seeds the generator of the device's random numbers."""
        torch.default_generator.manual_seed(value)


class ComputeStream:
    """A logical device on a GPU: a stream."""

    def __init__(self, index: int) -> None:
        self.device = torch.device("cuda", index)
        self.stream: Stream = torch.cuda.Stream(self.device)

    def enter(self) -> None:
        """Makes the calling thread feed this device. The current device and stream are thread-local."""
        torch.set_num_threads(1)
        torch.cuda.set_device(self.device)
        torch.cuda.set_stream(self.stream)

    def synchronize(self) -> None:
        """Returns when all queued work has ended. Copies to other devices end before their receivers do."""
        self.stream.synchronize()

    def now(self) -> Event:
        """A mark in the device's work."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(self.stream)
        return event

    def elapsed_ns(self, since: Any, mark: Any) -> int:
        """The time from one mark to another; the device has passed both."""
        return round(since.elapsed_time(mark) * 1e6)

    def seed(self, value: int) -> None:
        """Seeds the generator of the device's random numbers, which all logical devices of the GPU share."""
        torch.cuda.default_generators[self.device.index].manual_seed(value)


Lane = NoStream | ComputeStream


def lanes(kinds: Sequence[str]) -> tuple[Lane, ...]:
    """A lane for each device. The k-th device of kind `gpu` is the k-th GPU, counted round if there are fewer GPUs."""
    gpus = iter(range(len(kinds)))
    return tuple(
        NoStream() if kind == "cpu" else ComputeStream(next(gpus) % torch.cuda.device_count()) for kind in kinds
    )
