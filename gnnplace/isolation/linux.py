"""Linux settings of a process: death with its parent, a memory limit, steady timing."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CPUCLOCK_SCHED = 2  # combined with a process id: the clock of its CPU time
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8  # glibc's mallopt
_MOST = 2**31 - 1
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # system calls
_ATTRIBUTES = "=IIQiIQQQ"  # struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period
_SLICE_NS = 100_000  # the shortest slice that Linux grants


def die_with_parent(parent: int) -> None:
    """Makes the kernel kill this process when its parent (process id `parent`) ends, or if it has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def inherit_orphans() -> None:
    """Makes this process the parent of every descendant whose parent ends, in whatever session it is."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_with_descendants(pid: int) -> None:
    """Kills a child of this process that inherits orphans, and all its descendants. The caller waits for the child."""
    os.kill(pid, signal.SIGSTOP)  # so that it starts no more descendants
    while descendants := list(_descendants(pid)):
        for descendant in descendants:
            with suppress(ProcessLookupError):
                os.kill(descendant, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)


def _descendants(pid: int) -> Iterator[int]:
    """The running descendants of a process."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                yield from _descendants(int(child))
                with suppress(FileNotFoundError, ProcessLookupError):
                    if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                        yield int(child)


def processor_ns(pid: int) -> int:
    """The CPU time of all threads of a process since its start, in ns."""
    return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)


def keep_freed_memory(arenas: int = 1) -> None:
    """Makes malloc keep freed memory for later allocations. Called before the process has other threads.

    All threads share this many `arenas`; 0: as many as malloc likes. By default malloc returns large tensors to the
    system, which then has to map their pages again: thousands a step, for a tenth to a quarter of the step's time. How
    many depends on the random addresses of a process.
    """
    libc = ctypes.CDLL(None)
    for option, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _MOST), (_M_ARENA_MAX, arenas)):
        libc.mallopt(option, value)


def short_slices() -> None:
    """Asks the scheduler for slices of 0.1 ms for this thread and all threads that it starts.

    Threads on one core then wait for each other no longer than that. With the usual slices a message that arrives
    during an op is read milliseconds later, at the end of the slice. Linux before 6.12 ignores the request.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if number is not None and os.sched_getscheduler(0) == os.SCHED_OTHER:
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        attributes = struct.pack(_ATTRIBUTES, struct.calcsize(_ATTRIBUTES), os.SCHED_OTHER, 0, nice, 0, _SLICE_NS, 0, 0)
        ctypes.CDLL(None).syscall(number, 0, attributes, 0)


def limit_memory(memory_bytes: int | None = None) -> None:
    """Lets this process allocate `memory_bytes` more than it has now (None: all that the machine has free).

    It never gets more than the machine has free. Beyond the limit allocations raise MemoryError (or a library's own
    error).
    """
    free = _bytes_of("/proc/meminfo", "MemAvailable:")
    more = free if memory_bytes is None else min(free, max(0, memory_bytes))  # a negative limit would mean no limit
    _set_limit(_bytes_of("/proc/self/status", "VmData:") + more)


def lift_memory_limit() -> None:
    """Removes the memory limit of this process."""
    _set_limit(resource.getrlimit(resource.RLIMIT_DATA)[1])


@contextmanager
def without_memory_limit() -> Iterator[None]:
    """Removes the memory limit of this process within the context."""
    before = resource.getrlimit(resource.RLIMIT_DATA)[0]
    lift_memory_limit()
    try:
        yield
    finally:
        _set_limit(before)


def _bytes_of(path: str, name: str) -> int:
    """The bytes in the line of a file that begins with `name`, such as `VmData: 12 kB`."""
    with open(path) as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))


def _set_limit(data_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes, resource.getrlimit(resource.RLIMIT_DATA)[1]))
