"""A forked worker process on one core, with limited memory; it answers over a pipe and dies with its parent.

The parent sleeps while it waits. If a worker ends for whatever reason, the parent gets a MeasurementError.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from gnnplace.isolation.linux import (
    die_with_parent,
    inherit_orphans,
    keep_freed_memory,
    kill_with_descendants,
    lift_memory_limit,
    limit_memory,
)
from gnnplace.isolation.outcome import MeasurementError

Serve = Callable[[Connection], None]

_MOST_CHARACTERS = 500
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "std::bad_alloc", "Cannot allocate memory")


def usable_cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


class Worker:
    """A forked process that runs `serve(connection)` on one core (None: on all). Failures name it `name`."""

    def __init__(self, name: str, core: int | None, memory_bytes: int | None, serve: Serve) -> None:
        self.name = name
        self.connection, theirs = Pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            self.connection.close()
            _run(theirs, parent, core, memory_bytes, serve)
        theirs.close()

    def send(self, request: Any) -> None:
        """Sends a request. If the worker has died, `answers` raises."""
        try:
            self.connection.send(request)
        except (BrokenPipeError, ConnectionResetError):
            return

    def kill(self) -> int:
        """Kills the process with its descendants if it still runs; returns its exit status (negative: the signal)."""
        self.connection.close()
        if self._pid == 0:
            return 0
        ended_pid, status = os.waitpid(self._pid, os.WNOHANG)
        if ended_pid == 0:
            kill_with_descendants(self._pid)
            _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)

    def ended_by(self) -> MeasurementError:
        """The outcome of a worker that has closed its pipe."""
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return unexpected_end(self.name, os.waitstatus_to_exitcode(status))


def answers(workers: Sequence[Worker]) -> list[Any]:
    """One answer of each worker. Raises the exception that a worker raised, or MeasurementError if one died."""
    replies: dict[Worker, Any] = {}
    while len(replies) < len(workers):
        ready = wait([worker.connection for worker in workers if worker not in replies])
        for worker in [worker for worker in workers if worker.connection in ready]:
            try:
                answer = worker.connection.recv()
            except (EOFError, ConnectionResetError):
                raise worker.ended_by() from None
            if isinstance(answer, Exception):
                raise answer
            replies[worker] = answer
    return [replies[worker] for worker in workers]


def unexpected_end(name: str, status: int) -> MeasurementError:
    """The outcome of a process that ended unexpectedly with this exit status (negative: a signal)."""
    if status >= 0:
        return MeasurementError("crash", f"{name} ended with status {status}")
    if status == -signal.SIGKILL:
        return MeasurementError(
            "out_of_memory", f"{name} was killed by SIGKILL, as the kernel does where memory has run out"
        )
    with suppress(ValueError):  # signals without a name
        return MeasurementError("crash", f"{name} was killed by {signal.Signals(-status).name}")
    return MeasurementError("crash", f"{name} was killed by signal {-status}")


def failure(error: Exception, bad_input: type[ValueError] | tuple[()] = ()) -> Exception:
    """The MeasurementError for an exception that a step raised; a ValueError if the exception is a `bad_input`.

    It holds text alone, so that it can be sent to a process that lacks the exception's class.
    """
    if isinstance(error, MeasurementError):
        return MeasurementError(error.outcome, error.reason)
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError) or any(words in text for words in _OUT_OF_MEMORY):
        return MeasurementError("out_of_memory", _short(text))
    if isinstance(error, bad_input):
        return ValueError(_short(str(error)))
    if isinstance(error, NotImplementedError):  # the framework has no kernel for this on its device
        return MeasurementError("unsupported", _short(text))
    return MeasurementError("crash", _short(text))


def _short(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} ..."


def _run(connection: Connection, parent: int, core: int | None, memory_bytes: int | None, serve: Serve) -> None:
    """The life of a worker; never returns.

    Whatever its step raises is a failed measurement, since bad input is refused before the worker starts.
    """
    status = 1
    try:
        die_with_parent(parent)
        inherit_orphans()
        gc.disable()
        if core is not None:
            os.sched_setaffinity(0, {core})
        keep_freed_memory()
        limit_memory(memory_bytes)
        try:
            serve(connection)
            status = 0
        except EOFError:
            status = 0  # the parent has closed the pipe
        except Exception as error:  # a user's step may raise anything
            lift_memory_limit()  # the report itself needs memory
            connection.send(failure(error))
    finally:
        os._exit(status)
