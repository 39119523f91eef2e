"""Messages between processes on one host: the sender copies a tensor into memory that both have, and raises a flag.

The memory is anonymous, made before the processes are forked: when they end, however they end, it is gone. A flag holds the
number of the last step for which it was raised. A receiver looks at its flag until it is raised (its core is its own). Flags are
aligned words that are written after what they announce, which x86 and the interpreter's own locks on other processors keep in order.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gnnplace.execution.torch_program import Message, Signal

_PAGE = mmap.PAGESIZE
_FLAG_BYTES = 64  # a cache line, so that two flags never travel together


class SharedMemory:
    """A `Transport` for all devices of a step; each process sets `step` before it runs one."""

    def __init__(self, offsets: dict[int, int], size: int, num_flags: int, num_devices: int) -> None:
        self.step = 0
        self._offsets = offsets
        self._memory = mmap.mmap(-1, max(_PAGE, size))
        self._bytes = torch.frombuffer(self._memory, dtype=torch.uint8)
        self._barrier = num_flags * (_FLAG_BYTES // 8)
        self._flags = memoryview(mmap.mmap(-1, max(_PAGE, (num_flags + num_devices) * _FLAG_BYTES))).cast("Q")
        self._num_devices = num_devices

    def sender(self, message: Message) -> Callable[[Tensor], None]:
        """What copies a tensor to where the receiver finds it."""
        there, raised = self._place(message).copy_, self._raiser(message.number)

        def send(value: Tensor) -> None:
            there(value)
            raised()

        return send

    def receiver(self, message: Message) -> Callable[[], Tensor]:
        """What waits for a tensor and returns it, in place."""
        place, awaited = self._place(message), self._waiter(message.number)

        def receive() -> Tensor:
            awaited()
            return place

        return receive

    def raiser(self, signal: Signal) -> Callable[[], None]:
        """What raises a signal."""
        return self._raiser(signal.number)

    def waiter(self, signal: Signal) -> Callable[[], None]:
        """What waits for a signal."""
        return self._waiter(signal.number)

    def meet(self, device: int) -> None:
        """Returns when all devices have come here in this step."""
        flags, step, first, words = self._flags, self.step, self._barrier, _FLAG_BYTES // 8
        flags[first + device * words] = step
        for other in range(self._num_devices):
            while flags[first + other * words] < step:
                pass

    def _place(self, message: Message) -> Tensor:
        like = message.tensor
        start = self._offsets[message.number]
        size = (sum((n - 1) * stride for n, stride in zip(like.shape, like.stride(), strict=True)) + 1) * like.element_size()
        if like.numel() == 0:
            return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
        return self._bytes[start : start + size].view(like.dtype).as_strided(like.shape, like.stride())

    def _raiser(self, number: int) -> Callable[[], None]:
        flags, flag = self._flags, number * (_FLAG_BYTES // 8)

        def announce() -> None:
            flags[flag] = self.step

        return announce

    def _waiter(self, number: int) -> Callable[[], None]:
        flags, flag = self._flags, number * (_FLAG_BYTES // 8)

        def look() -> None:
            step = self.step
            while flags[flag] != step:
                pass

        return look


def packed(messages: Sequence[Message]) -> tuple[dict[int, int], int]:
    """An offset for each message, side by side, and the bytes of all."""
    offsets, size = {}, 0
    for message in messages:
        offsets[message.number] = size
        size += -(-message.tensor.numel() * message.tensor.element_size() // _FLAG_BYTES) * _FLAG_BYTES
    return offsets, size
