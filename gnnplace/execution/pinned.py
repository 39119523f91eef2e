"""A forked process of its own core: it dies with its parent, holds no more memory than it may, and answers over a pipe.

The parent sleeps while it waits. Whatever ends a worker comes back as a MeasurementError.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from gnnplace.execution.measurement import MeasurementError

Serve = Callable[[Connection], None]

_PR_SET_PDEATHSIG = 1
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "std::bad_alloc", "Cannot allocate memory")


def usable_cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


class Worker:
    """A forked process that runs `serve(connection)` on one core (None: on all). `name` is how failures call it."""

    def __init__(self, name: str, core: int | None, memory_bytes: int | None, serve: Serve) -> None:
        self.name = name
        self.connection, theirs = Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            self.connection.close()
            _run(theirs, core, memory_bytes, serve)
        theirs.close()

    def send(self, request: Any) -> None:
        """Asks for something; a worker that has died is noticed by `answers`."""
        try:
            self.connection.send(request)
        except (BrokenPipeError, ConnectionResetError):
            return

    def kill(self) -> int:
        """Ends the process for good, if it has not ended itself, and returns its exit status (negative: the signal)."""
        self.connection.close()
        if self._pid == 0:
            return 0
        ended, status = os.waitpid(self._pid, os.WNOHANG)
        if ended == 0:
            os.kill(self._pid, signal.SIGKILL)
            _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)

    def ended_by(self) -> MeasurementError:
        """Why a worker that closed its pipe is gone."""
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return MeasurementError("crash", f"{self.name} {describe_exit(os.waitstatus_to_exitcode(status))}")


def answers(workers: Sequence[Worker]) -> list[Any]:
    """One answer of each worker. Raises what one of them raised, and MeasurementError(crash) where one has died."""
    found: dict[Worker, Any] = {}
    while len(found) < len(workers):
        ready = wait([worker.connection for worker in workers if worker not in found])
        for worker in [worker for worker in workers if worker.connection in ready]:
            try:
                answer = worker.connection.recv()
            except (EOFError, ConnectionResetError):
                raise worker.ended_by() from None
            if isinstance(answer, Exception):
                raise answer
            found[worker] = answer
    return [found[worker] for worker in workers]


def describe_exit(status: int) -> str:
    """`was killed by SIGSEGV`, `ended with status 1`."""
    if status >= 0:
        return f"ended with status {status}"
    return f"was killed by {signal.Signals(-status).name}"


def die_with_parent() -> None:
    """Linux: this process is killed when its parent ends, however that happens."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def limit_memory(memory_bytes: int) -> None:
    """Lets this process allocate so many more bytes than it has now; what is more raises MemoryError (or the library's own)."""
    with open("/proc/self/status") as status:
        data = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (data + memory_bytes, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def failure(error: Exception) -> Exception:
    """What an exception of a step is called: an outcome; a ValueError (of bad input) stays one."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, MeasurementError | ValueError):
        return error
    if isinstance(error, MemoryError) or any(words in text for words in _OUT_OF_MEMORY):
        return MeasurementError("out_of_memory", text)
    if isinstance(error, NotImplementedError):
        return MeasurementError("unsupported", text)
    return MeasurementError("crash", text)


def _run(connection: Connection, core: int | None, memory_bytes: int | None, serve: Serve) -> None:
    """The life of a worker; never returns."""
    status = 1
    try:
        die_with_parent()
        gc.disable()
        if core is not None:
            os.sched_setaffinity(0, {core})
        if memory_bytes is not None:
            limit_memory(memory_bytes)
        try:
            serve(connection)
            status = 0
        except EOFError:
            status = 0  # the parent has closed
        except Exception as error:
            connection.send(failure(error))
    finally:
        os._exit(status)
