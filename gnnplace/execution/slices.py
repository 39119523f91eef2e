"""How soon a thread that wakes up gets a core on which another one computes."""

from __future__ import annotations

import ctypes
import os
import platform
import struct

SLICE_NS = 100_000  # the shortest that Linux grants
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # system calls
ATTRIBUTES = "=IIQiIQQQ"  # struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period


def short_slices() -> None:
    """Asks for slices of 0.1 ms for this thread and all that it starts.

    Threads of one core then wait for each other no longer than that: a message that arrives during an op is otherwise read at the end of
    the op's slice, milliseconds later. It is a wish: kernels before Linux 6.12, and other systems, do as they always do.
    """
    number = SCHED_SETATTR.get(platform.machine())
    if number is not None and os.sched_getscheduler(0) == os.SCHED_OTHER:
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        wish = struct.pack(ATTRIBUTES, struct.calcsize(ATTRIBUTES), os.SCHED_OTHER, 0, nice, 0, SLICE_NS, 0, 0)
        ctypes.CDLL(None).syscall(number, 0, wish, 0)
