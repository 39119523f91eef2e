"""Streams and events without a GPU: work is done at once, and every wait for something that was not recorded before is an error.

What it proves: each line of the GPU path runs, and whoever uses a value waits for it. What it can't: that a real GPU, where work is
done later, sees the same.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import contextmanager

import pytest
import torch

from gnnplace.execution.torch import lanes, streams


class Stream:
    """Counts its work: `clock[s]` is how much of stream s this stream's next work comes after."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.clock: dict[int, int] = defaultdict(int)

    def wait_event(self, event: Event) -> None:
        assert event.passed is not None, "waits for an event that nobody has recorded"
        for stream, work in event.passed.items():
            self.clock[stream] = max(self.clock[stream], work)

    def work(self) -> None:
        self.clock[id(self)] += 1

    def synchronize(self) -> None:
        pass


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.passed: dict[int, int] | None = None

    def record(self, stream: Stream) -> None:
        stream.work()
        self.passed = dict(stream.clock)

    def synchronize(self) -> None:
        assert self.passed is not None

    def elapsed_time(self, other: Event) -> float:
        return 0.001


class Gpu:
    """What was told to the allocator and on which stream each thread is."""

    def __init__(self) -> None:
        self.recorded: list[tuple[int, Stream]] = []
        self.current = threading.local()

    @contextmanager
    def stream(self, stream: Stream):
        before = getattr(self.current, "stream", None)
        self.current.stream = stream
        yield
        self.current.stream = before


class Lane(lanes.ComputeStream):
    """A logical GPU whose tensors lie on the CPU."""

    def __init__(self, index: int) -> None:
        self.device, self.stream = torch.device("cpu"), Stream(torch.device("cpu"))

    def enter(self) -> None:
        torch.set_num_threads(1)

    def seed(self, value: int) -> None:
        torch.default_generator.manual_seed(value)


def install(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Puts all this in the place of CUDA."""
    gpu = Gpu()
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "stream", gpu.stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Fake")
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: gpu.recorded.append((tensor.data_ptr(), stream)))
    buffer = streams._buffer
    monkeypatch.setattr(streams, "_buffer", lambda like, pinned=False: buffer(like))
    monkeypatch.setattr(lanes, "ComputeStream", Lane)
    return gpu
