"""Messages and signals between devices that threads of one process feed, by CUDA streams and events.

On a `ComputeStream` ops are queued and the host runs ahead. So a sender's thread hands over a value with the event
after which the value is complete. A receiving GPU's stream waits for the event; its thread doesn't. On `NoStream` (a
CPU device) an op has ended when it returns, and the thread of a receiving CPU device waits for a GPU's event.

Each ordered pair of devices has a copy stream. PyTorch copies between two GPUs on the source's current stream, and
makes the destination's current stream wait before and after. So the pair has a stream at either end, and compute
streams take no part in copies. The allocator learns of each tensor that a copy reads or makes for another stream
(`record_stream`): its memory is free at its last use in program order, as in the execution model, but not before that
stream has finished with it. References held until the end of the step would be as safe, but would hold the memory of
every message for the whole step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from queue import SimpleQueue
from typing import NamedTuple

import torch
from torch import Tensor

from gnnplace.execution.torch.lanes import Event, Lane, Stream
from gnnplace.execution.torch.program import Message, Signal
from gnnplace.execution.torch.values import once


class Arrival(NamedTuple):
    """A value that is handed over (None for a signal), complete after the event `ready` (None: at once)."""

    value: Tensor | None
    ready: Event


class AbandonedError(Exception):
    """Another device has failed, so a message will never arrive."""


class Streams:
    """A `Transport` between lanes of one process.

    Each message and signal has a queue, which passes one arrival a step.
    """

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = lanes
        self._slots: dict[int, SimpleQueue[Arrival | None]] = {}
        self.copy_streams = cache(self._copy_streams)
        self.copier = cache(self._copier)

    def sender(self, message: Message) -> Callable[[Tensor], None]:
        """A function that queues the copy of a value and hands it over."""
        slot, copy = self._slot(message.number), self.copier(message)

        def send(value: Tensor) -> None:
            slot.put(copy(value))

        return send

    def receiver(self, message: Message) -> Callable[[], Tensor]:
        """A function that waits until the copy is queued, makes the device wait for its end, and returns it."""
        slot, wait = self._slot(message.number), _waiter(self._lanes[message.dst])

        def receive() -> Tensor:
            arrival = _next_arrival(slot)
            wait(arrival.ready)
            assert arrival.value is not None
            return arrival.value

        return receive

    def raiser(self, signal: Signal) -> Callable[[], None]:
        """A function that hands over the device's progress."""
        slot, mark = self._slot(signal.number), _marker(self._lanes[signal.src])
        return lambda: slot.put(Arrival(None, mark()))

    def waiter(self, signal: Signal) -> Callable[[], None]:
        """A function that makes the device wait for a signal."""
        slot, wait = self._slot(signal.number), _waiter(self._lanes[signal.dst])
        return lambda: wait(_next_arrival(slot).ready)

    def abandon(self) -> None:
        """Wakes every waiting thread with an `AbandonedError`."""
        for slot in self._slots.values():
            slot.put(None)

    def _copier(self, message: Message) -> Callable[[Tensor], Arrival]:
        """A function that queues the copy of a value; the thread of the value's device calls it.

        Buffers on CPU devices, and pinned buffers for copies to a GPU, are allocated here once, so that no step waits
        for them.
        """
        src, dst, like = self._lanes[message.src], self._lanes[message.dst], message.tensor
        if src.stream is None and dst.stream is None:
            return _within_cpu(like)
        streams = self.copy_streams(message.src, message.dst)
        if src.stream is None:
            assert dst.stream is not None
            return _to_gpu(like, dst.device, dst.stream, streams[0])
        if dst.stream is None:
            return _to_cpu(like, src.stream, streams[0])
        return _between_gpus(like, src.stream, dst.device, dst.stream, streams)

    def _copy_streams(self, source: int, destination: int) -> tuple[Stream, Stream]:
        """The streams of copies from one device to another: at the source and at the destination."""
        src, dst = self._lanes[source], self._lanes[destination]
        near = torch.cuda.Stream(dst.device if src.stream is None else src.device)
        one = src.stream is None or dst.stream is None or src.device == dst.device
        return near, near if one else torch.cuda.Stream(dst.device)

    def _slot(self, number: int) -> SimpleQueue[Arrival | None]:
        return self._slots.setdefault(number, SimpleQueue())


def _within_cpu(like: Tensor) -> Callable[[Tensor], Arrival]:
    """Copies between two CPU devices, by the sender's thread."""
    received, index = _buffer(like), once(like)

    def copy(value: Tensor) -> Arrival:
        received[index].copy_(value[index])
        return Arrival(received, None)

    return copy


def _to_gpu(like: Tensor, device: torch.device, user: Stream, near: Stream) -> Callable[[Tensor], Arrival]:
    """Copies from a CPU device to a GPU: the thread copies into pinned memory, and the GPU copies from there.

    The pinned buffer is free at the end of the step.
    """
    index, copied = once(like), torch.cuda.Event()
    staged = _buffer(like, pinned=True)[index]

    def copy(value: Tensor) -> Arrival:
        staged.copy_(value[index])
        with torch.cuda.stream(near):
            received = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=device)
            received[index].copy_(staged, non_blocking=True)
        copied.record(near)
        received.record_stream(user)
        return Arrival(received, copied)

    return copy


def _to_cpu(like: Tensor, maker: Stream, near: Stream) -> Callable[[Tensor], Arrival]:
    """Copies from a GPU into pinned memory, where a CPU device reads the value in place."""
    received, index, ready, copied = _buffer(like, pinned=True), once(like), torch.cuda.Event(), torch.cuda.Event()

    def copy(value: Tensor) -> Arrival:
        ready.record(maker)
        near.wait_event(ready)
        with torch.cuda.stream(near):
            received[index].copy_(_packed(value[index], like), non_blocking=True)
        copied.record(near)
        value.record_stream(near)
        return Arrival(received, copied)

    return copy


def _between_gpus(
    like: Tensor, maker: Stream, device: torch.device, user: Stream, streams: tuple[Stream, Stream]
) -> Callable[[Tensor], Arrival]:
    """Copies between two GPUs, peer to peer if the driver can (PyTorch enables it), or between streams of one GPU."""
    near, far = streams
    index, ready, copied = once(like), torch.cuda.Event(), torch.cuda.Event()

    def copy(value: Tensor) -> Arrival:
        ready.record(maker)
        near.wait_event(ready)
        with torch.cuda.stream(far), torch.cuda.stream(near):
            received = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=device)
            received[index].copy_(_packed(value[index], like), non_blocking=True)
        copied.record(far)
        value.record_stream(near)
        received.record_stream(user)
        return Arrival(received, copied)

    return copy


def _packed(value: Tensor, like: Tensor) -> Tensor:
    """The value with the strides in which it is sent. With others PyTorch would copy through pageable memory and block
    the host.

    No op may run on `like`: several threads may use it at once.
    """
    if value.stride() == like.stride():
        return value
    return torch.empty_strided(value.shape, like.stride(), dtype=value.dtype, device=value.device).copy_(value)


def _buffer(like: Tensor, pinned: bool = False) -> Tensor:
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, pin_memory=pinned)


def _marker(lane: Lane) -> Callable[[], Event]:
    """A function that marks a device's progress, by an event that is recorded once a step."""
    if lane.stream is None:
        return lambda: None
    event, stream = torch.cuda.Event(), lane.stream

    def mark() -> Event:
        event.record(stream)
        return event

    return mark


def _waiter(lane: Lane) -> Callable[[Event], None]:
    """A function that makes a device wait for an event: a GPU's stream (not its thread), or a CPU device's thread."""

    def wait(event: Event) -> None:
        if event is not None:
            if lane.stream is None:
                event.synchronize()
            else:
                lane.stream.wait_event(event)

    return wait


def _next_arrival(slot: SimpleQueue[Arrival | None]) -> Arrival:
    """The next arrival in a queue. Raises AbandonedError if another device has failed."""
    arrival = slot.get()
    if arrival is None:
        raise AbandonedError
    return arrival
