"""A process of its own for each measurement: it loads the workload and starts what runs it, so that nothing there can hurt us.

`Host` is our side. Whatever happens to the process (a crash, a hang, no memory) is a MeasurementError with its outcome, within the time
that was given; then its whole group of processes is killed, with SIGKILL, and nothing of it is left.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from time import monotonic
from types import TracebackType
from typing import Any

from gnnplace.execution.measurement import MeasurementError
from gnnplace.execution.pinned import describe_exit, die_with_parent, failure, limit_memory
from gnnplace.execution.workload import PlacedStep, Workload
from gnnplace.graph import ComputationGraph

Loader = Callable[..., Workload]


class Host:
    """A child process with the workload that `loader(*arguments)` returns there; `loader` is `package.module:function`.

    A request takes at most what is left of `limit_s` seconds since the host, or since `allow` was called; what takes longer is a
    MeasurementError(timeout). Use it as a context: leaving it kills the process and all its children.
    """

    def __init__(self, loader: str, *arguments: Any, limit_s: float) -> None:
        self.allow(limit_s)
        ours, theirs = socket.socketpair()
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "KINETO_LOG_LEVEL": "99"}
        command = [sys.executable, "-m", "gnnplace.execution.host", str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], start_new_session=True, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr
        )
        theirs.close()
        self._connection = Connection(ours.detach())
        try:
            self.graph: ComputationGraph = self._ask("load", loader, arguments)
        except BaseException:
            self.close()
            raise

    def allow(self, limit_s: float) -> None:
        """Gives what follows so many seconds from now."""
        self._limit_s, self._deadline = limit_s, monotonic() + limit_s

    def start(self, *arguments: Any) -> PlacedStep:
        """The workload's `start`: a step that runs in the host's process."""
        return _RemoteStep(self._ask, self._ask("start", *arguments))

    def unplaced(self, *arguments: Any) -> Any:
        """The workload's `unplaced`."""
        return self._ask("unplaced", *arguments)

    def links(self, *arguments: Any) -> Any:
        """The workload's `links`."""
        return self._ask("links", *arguments)

    def close(self) -> None:
        """Kills the host and every process of its group."""
        self._connection.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _ask(self, *request: Any) -> Any:
        try:
            self._connection.send(request)
            if not self._connection.poll(max(0.0, self._deadline - monotonic())):
                raise MeasurementError("timeout", f"{request[0]}: not done after {self._limit_s:g} s")
            answer = self._connection.recv()
        except (EOFError, ConnectionResetError, BrokenPipeError):
            raise MeasurementError("crash", f"{request[0]}: the process {describe_exit(self._process.wait())}") from None
        if isinstance(answer, Exception):
            raise answer
        return answer


class _RemoteStep:
    """A `PlacedStep` of the host, by its number there."""

    def __init__(self, ask: Callable[..., Any], number: int) -> None:
        self._ask, self._number = ask, number

    def run(self, steps: int) -> Any:
        return self._ask("run", self._number, steps)

    def outputs(self) -> Any:
        return self._ask("outputs", self._number)

    def op_times(self, steps: int) -> Any:
        return self._ask("op_times", self._number, steps)

    def peak_memory_bytes(self) -> Any:
        return self._ask("peak_memory_bytes", self._number)

    def described(self) -> Any:
        return self._ask("described", self._number)

    def close(self) -> None:
        with suppress(MeasurementError):  # a host that is gone has closed it
            self._ask("close", self._number)


def serve(connection: Connection) -> None:
    """The host's life: answers requests until its parent is gone."""
    die_with_parent()
    limit_memory(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    life = _Life()
    while True:
        request = connection.recv()
        try:
            answer = life.answer(*request)
        except Exception as error:
            answer = failure(error)
        connection.send(answer)


class _Life:
    """The workload, and the steps that were started."""

    def __init__(self) -> None:
        self._workload: Workload | None = None
        self._steps: list[PlacedStep] = []

    def answer(self, what: str, *arguments: Any) -> Any:
        """What one request asks for."""
        if what == "load":
            loader, given = arguments
            module, _, function = loader.partition(":")
            self._workload = getattr(importlib.import_module(module), function)(*given)
            return self._workload.graph
        assert self._workload is not None
        if what == "start":
            self._steps.append(self._workload.start(*arguments))
            return len(self._steps) - 1
        if what in ("unplaced", "links"):
            return getattr(self._workload, what)(*arguments)
        number, *rest = arguments
        return getattr(self._steps[number], what)(*rest)


if __name__ == "__main__":
    with suppress(EOFError, ConnectionResetError):
        serve(Connection(int(sys.argv[1])))
