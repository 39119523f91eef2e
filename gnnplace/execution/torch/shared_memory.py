"""Messages between processes on one host: the sender copies a tensor into shared memory and raises a flag.

The memory is anonymous and mapped before the processes are forked, so it goes with them, however they end. A flag holds
the number of the last step for which it was raised. A receiver reads its flag until it is raised. It should have a core
to itself; after a while it yields the core to others, because otherwise a message could take as long as the system lets
a process run. A flag is an aligned word, written after the data that it announces. x86 keeps this order; on other
processors the interpreter's own locks do.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

import torch
from torch import Tensor

from gnnplace.execution.torch.program import Message, Signal
from gnnplace.execution.torch.slots import Slots
from gnnplace.execution.torch.values import once

_PAGE = mmap.PAGESIZE
_READS = 1000  # some 50 microseconds
_FLAG_BYTES = 64  # a cache line, so that two flags never travel together


class SharedMemory:
    """A `Transport` for all devices of a step. Each process sets `step` before it runs a step."""

    def __init__(self, slots: Slots, num_flags: int, num_devices: int) -> None:
        self.step = 0
        self._offsets = slots.offsets
        self._arenas = [
            torch.frombuffer(mmap.mmap(-1, max(_PAGE, size)), dtype=torch.uint8) for size in slots.arena_bytes
        ]
        self._barrier = num_flags * (_FLAG_BYTES // 8)
        self._flags = memoryview(mmap.mmap(-1, max(_PAGE, (num_flags + num_devices) * _FLAG_BYTES))).cast("Q")
        self._num_devices = num_devices

    def sender(self, message: Message) -> Callable[[Tensor], None]:
        """A function that copies a tensor to its slot at the receiver and raises the flag."""
        index, raise_flag = once(message.tensor), self._raiser(message.number)
        copy = self._slot(message)[index].copy_

        def send(value: Tensor) -> None:
            copy(value)
            raise_flag()

        def send_once(value: Tensor) -> None:
            copy(value[index])
            raise_flag()

        return send_once if slice(1) in index else send

    def receiver(self, message: Message) -> Callable[[], Tensor]:
        """A function that waits for a tensor and returns it in its slot."""
        tensor, wait = self._slot(message), self._waiter(message.number)

        def receive() -> Tensor:
            wait()
            return tensor

        return receive

    def raiser(self, signal: Signal) -> Callable[[], None]:
        """A function that raises a signal."""
        return self._raiser(signal.number)

    def waiter(self, signal: Signal) -> Callable[[], None]:
        """A function that waits for a signal."""
        return self._waiter(signal.number)

    def meet(self, device: int) -> None:
        """Returns when all devices have called it in this step."""
        flags, step, first, words = self._flags, self.step, self._barrier, _FLAG_BYTES // 8
        flags[first + device * words] = step
        for other in range(self._num_devices):
            _await(flags, first + other * words, step)

    def _slot(self, message: Message) -> Tensor:
        return shaped(self._arenas[message.dst][self._offsets[message.number] :], message.tensor)

    def _raiser(self, number: int) -> Callable[[], None]:
        flags, flag = self._flags, number * (_FLAG_BYTES // 8)

        def announce() -> None:
            flags[flag] = self.step

        return announce

    def _waiter(self, number: int) -> Callable[[], None]:
        flags, flag = self._flags, number * (_FLAG_BYTES // 8)

        def look() -> None:
            _await(flags, flag, self.step)

        return look


def shaped(arena: Tensor, like: Tensor) -> Tensor:
    """A tensor with the layout of another, at the start of an arena of bytes."""
    if like.numel() == 0:
        return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
    return arena[: extent_bytes(like)].view(like.dtype).as_strided(like.shape, like.stride())


def extent_bytes(like: Tensor) -> int:
    """The bytes from the first element of a tensor to the last."""
    if like.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(like.shape, like.stride(), strict=True))
    return (last + 1) * like.element_size()


def _await(flags: memoryview, flag: int, step: int) -> None:
    for _ in range(_READS):
        if flags[flag] >= step:
            return
    while flags[flag] < step:
        os.sched_yield()
