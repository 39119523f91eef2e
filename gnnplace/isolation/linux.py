"""Linux settings of a process: it dies with its parent, its memory is limited, its timing is steady."""

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
_CPUCLOCK_SCHED = 2  # with a process' id, the clock of its processor time
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8  # glibc's mallopt
_MOST = 2**31 - 1
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # system calls
_ATTRIBUTES = "=IIQiIQQQ"  # struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period
_SLICE_NS = 100_000  # the shortest that Linux grants


def die_with_parent(parent: int) -> None:
    """Has this process killed when its parent (process id `parent`) ends for any reason, or has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def inherit_orphans() -> None:
    """Makes this process the parent of all its descendants whose own parents end, whatever sessions they are in."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_with_descendants(pid: int) -> None:
    """Kills a child of this process that inherits orphans, and all its descendants. The child is to be waited for."""
    os.kill(pid, signal.SIGSTOP)  # it starts no more of them
    while pids := list(_descendants(pid)):
        for each in pids:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)


def _descendants(pid: int) -> Iterator[int]:
    """The descendants of a process that have not ended."""
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
    """Has malloc keep what is freed for what is allocated next; for a process that computes steps, before it has other
    threads.

    These share so many `arenas`; 0: as many as malloc likes. As it comes, malloc gives large tensors back to the system
    and has their pages made anew: thousands a step, for a tenth to a quarter of the step's time, more or fewer by the
    chances of a process' addresses.
    """
    libc = ctypes.CDLL(None)
    for option, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _MOST), (_M_ARENA_MAX, arenas)):
        libc.mallopt(option, value)


def short_slices() -> None:
    """Asks for slices of 0.1 ms for this thread and all that it starts.

    Threads of one core then wait for each other no longer than that: a message that arrives during an op is otherwise
    read at the end of the op's slice, milliseconds later. It is a wish: kernels before Linux 6.12 do as they always do.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if number is not None and os.sched_getscheduler(0) == os.SCHED_OTHER:
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        wish = struct.pack(_ATTRIBUTES, struct.calcsize(_ATTRIBUTES), os.SCHED_OTHER, 0, nice, 0, _SLICE_NS, 0, 0)
        ctypes.CDLL(None).syscall(number, 0, wish, 0)


def limit_memory(memory_bytes: int | None = None) -> None:
    """Lets this process allocate so many more bytes than it has now, and not more than the machine has free; what is
    more raises MemoryError (or the library's own).
    """
    free = _kibibytes("/proc/meminfo", "MemAvailable:")
    more = free if memory_bytes is None else min(free, max(0, memory_bytes))  # a limit below 0 would be none
    _set_limit(_kibibytes("/proc/self/status", "VmData:") + more)


def lift_memory_limit() -> None:
    """Removes the memory limit of this process."""
    _set_limit(resource.getrlimit(resource.RLIMIT_DATA)[1])


@contextmanager
def without_memory_limit() -> Iterator[None]:
    """Removes the memory limit of this process for a while."""
    before = resource.getrlimit(resource.RLIMIT_DATA)[0]
    lift_memory_limit()
    try:
        yield
    finally:
        _set_limit(before)


def _kibibytes(path: str, name: str) -> int:
    """The bytes of a line such as `VmData: 12 kB`."""
    with open(path) as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))


def _set_limit(data_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes, resource.getrlimit(resource.RLIMIT_DATA)[1]))
