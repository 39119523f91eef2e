"""Messages and signals between devices that threads of one process feed: CUDA streams and events, and nothing of them
on CPU devices.

On a `ComputeStream` ops are queued and the host runs ahead, so what is handed from thread to thread is a value together
with the event after which it is there; a receiving GPU's stream waits for the event, its thread does not. On `NoStream`
(a CPU device) an op is done when it returns, and a receiving CPU device's thread is what waits for a GPU's event.

Each ordered pair of devices has a copy stream. PyTorch copies between two GPUs on the source's current stream and has
the destination's current stream wait before and after, so the pair has a stream at either end: compute streams take no
part in copies. A tensor that a copy reads, or that it has made for another stream, is told so to the allocator
(`record_stream`): it is free for others at its last use in program order, as in the execution model, but not before the
copy or that stream is done with it. To hold references until the end of the step would be as safe, but every message
would cost its memory for the whole step.
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
    """What a sender hands over: a value (None for a signal), there once the event (None: at once) has been passed."""

    value: Tensor | None
    ready: Event


class AbandonedError(Exception):
    """Another device has failed: what this one waits for will never come."""


class Streams:
    """A `Transport` between lanes of one process.

    What is handed over goes through a queue for each message: one in, one out, a step.
    """

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = lanes
        self._slots: dict[int, SimpleQueue[Arrival | None]] = {}
        self.copy_streams = cache(self._copy_streams)
        self.copier = cache(self._copier)

    def sender(self, message: Message) -> Callable[[Tensor], None]:
        """What queues a copy and hands it over."""
        slot, copy = self._slot(message.number), self.copier(message)

        def send(value: Tensor) -> None:
            slot.put(copy(value))

        return send

    def receiver(self, message: Message) -> Callable[[], Tensor]:
        """What waits until the copy is queued, has the device wait until it is done, and returns it."""
        slot, wait = self._slot(message.number), _waiter(self._lanes[message.dst])

        def receive() -> Tensor:
            arrival = _given(slot)
            wait(arrival.ready)
            assert arrival.value is not None
            return arrival.value

        return receive

    def raiser(self, signal: Signal) -> Callable[[], None]:
        """What hands over that the device has got here."""
        slot, mark = self._slot(signal.number), _marker(self._lanes[signal.src])
        return lambda: slot.put(Arrival(None, mark()))

    def waiter(self, signal: Signal) -> Callable[[], None]:
        """What has the device wait for a signal."""
        slot, wait = self._slot(signal.number), _waiter(self._lanes[signal.dst])
        return lambda: wait(_given(slot).ready)

    def abandon(self) -> None:
        """Wakes every thread that waits for something, to an `AbandonedError`."""
        for slot in self._slots.values():
            slot.put(None)

    def _copier(self, message: Message) -> Callable[[Tensor], Arrival]:
        """What queues the copy of a value, from the thread of its device.

        Buffers on CPU devices and the pinned ones on the way to a GPU are made here once, so that no step waits for
        them.
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

    def _copy_streams(self, here: int, there: int) -> tuple[Stream, Stream]:
        """The stream that copies from one device to another run on, and what stands for it at the destination."""
        src, dst = self._lanes[here], self._lanes[there]
        near = torch.cuda.Stream(dst.device if src.stream is None else src.device)
        one = src.stream is None or dst.stream is None or src.device == dst.device
        return near, near if one else torch.cuda.Stream(dst.device)

    def _slot(self, number: int) -> SimpleQueue[Arrival | None]:
        return self._slots.setdefault(number, SimpleQueue())


def _within_cpu(like: Tensor) -> Callable[[Tensor], Arrival]:
    """Between two CPU devices, by the sender's thread."""
    there, index = _buffer(like), once(like)

    def copy(value: Tensor) -> Arrival:
        there[index].copy_(value[index])
        return Arrival(there, None)

    return copy


def _to_gpu(like: Tensor, device: torch.device, user: Stream, near: Stream) -> Callable[[Tensor], Arrival]:
    """From a CPU device: copied by its thread into pinned memory, from
    there by the GPU. The step's end frees the pinned buffer.
    """
    index, copied = once(like), torch.cuda.Event()
    staged = _buffer(like, pinned=True)[index]

    def copy(value: Tensor) -> Arrival:
        staged.copy_(value[index])
        with torch.cuda.stream(near):
            there = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=device)
            there[index].copy_(staged, non_blocking=True)
        copied.record(near)
        there.record_stream(user)
        return Arrival(there, copied)

    return copy


def _to_cpu(like: Tensor, maker: Stream, near: Stream) -> Callable[[Tensor], Arrival]:
    """From a GPU into pinned memory, where a CPU device reads it in place."""
    there, index, ready, copied = _buffer(like, pinned=True), once(like), torch.cuda.Event(), torch.cuda.Event()

    def copy(value: Tensor) -> Arrival:
        ready.record(maker)
        near.wait_event(ready)
        with torch.cuda.stream(near):
            there[index].copy_(_packed(value[index], like), non_blocking=True)
        copied.record(near)
        value.record_stream(near)
        return Arrival(there, copied)

    return copy


def _between_gpus(
    like: Tensor, maker: Stream, device: torch.device, user: Stream, streams: tuple[Stream, Stream]
) -> Callable[[Tensor], Arrival]:
    """From a GPU to another, peer to peer where the driver can (PyTorch
    turns it on), or within one GPU between two streams.
    """
    near, far = streams
    index, ready, copied = once(like), torch.cuda.Event(), torch.cuda.Event()

    def copy(value: Tensor) -> Arrival:
        ready.record(maker)
        near.wait_event(ready)
        with torch.cuda.stream(far), torch.cuda.stream(near):
            there = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=device)
            there[index].copy_(_packed(value[index], like), non_blocking=True)
        copied.record(far)
        value.record_stream(near)
        there.record_stream(user)
        return Arrival(there, copied)

    return copy


def _packed(value: Tensor, like: Tensor) -> Tensor:
    """The value with the strides that it is sent with: without, PyTorch would copy by way of pageable memory and block
    the host.

    No op may run on `like` here: it is a fake tensor, and those can't be used by several threads at once.
    """
    if value.stride() == like.stride():
        return value
    return torch.empty_strided(value.shape, like.stride(), dtype=value.dtype, device=value.device).copy_(value)


def _buffer(like: Tensor, pinned: bool = False) -> Tensor:
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, pin_memory=pinned)


def _marker(lane: Lane) -> Callable[[], Event]:
    """What marks how far a device has got: each call site has an event of its own, recorded once a step."""
    if lane.stream is None:
        return lambda: None
    event, stream = torch.cuda.Event(), lane.stream

    def mark() -> Event:
        event.record(stream)
        return event

    return mark


def _waiter(lane: Lane) -> Callable[[Event], None]:
    """What has a device wait for an event: a GPU's stream without its thread, a CPU device's thread itself."""

    def wait(event: Event) -> None:
        if event is not None:
            if lane.stream is None:
                event.synchronize()
            else:
                lane.stream.wait_event(event)

    return wait


def _given(slot: SimpleQueue[Arrival | None]) -> Arrival:
    arrival = slot.get()
    if arrival is None:
        raise AbandonedError
    return arrival
