"""A process of its own for each measurement: it loads the workload and starts what runs it, so that nothing there can hurt us.

`Host` is our side. Whatever happens there (a crash, a hang, no memory) is a MeasurementError with its outcome, within the time that was
given and 5 s. A device process that hangs is ended and the host lives on, for the next placement; a host that hangs is ended by its
keeper. When we close it, or end ourselves, however that happens, the keeper kills it and every process that it has left.
"""

from __future__ import annotations

import importlib
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from time import monotonic
from types import FrameType, TracebackType
from typing import Any

from gnnplace.execution.workload import PlacedStep, PlanError, Workload
from gnnplace.graph import ComputationGraph
from gnnplace.isolation import python
from gnnplace.isolation.linux import lift_memory_limit, limit_memory
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.isolation.worker import ended, failure

Loader = Callable[..., Workload]

GRACE_S = 2.0  # for a host to say itself that its time is up, and to end what it runs


class Host:
    """A child process with the workload that `loader(*arguments)` returns there; `loader` is `package.module:function`.

    A request takes at most what is left of `limit_s` seconds since the host, or since `allow` was called; what takes longer is a
    MeasurementError(timeout). Use it as a context: leaving it kills the process and all its children.
    """

    def __init__(self, loader: str, *arguments: Any, limit_s: float) -> None:
        self.allow(limit_s)
        (life, its_life), (requests, its_requests) = socket.socketpair(), socket.socketpair()
        environment = {"TF_CPP_MIN_LOG_LEVEL": "2"} | python.environment(KINETO_LOG_LEVEL="99")
        passed = (its_life.fileno(), its_requests.fileno())
        command = python.command("-m", "gnnplace.execution.keeper", *map(str, passed))
        with its_life, its_requests:  # stdout is for results: what a workload prints goes to stderr
            self._keeper = subprocess.Popen(
                command, pass_fds=passed, start_new_session=True, env=environment, stdin=subprocess.DEVNULL, stdout=2
            )
        self._life, self._connection = Connection(life.detach()), Connection(requests.detach())
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

    def as_run(self, *arguments: Any) -> Any:
        """The workload's `as_run`."""
        return self._ask("as_run", *arguments)

    def unplaced(self, *arguments: Any) -> Any:
        """The workload's `unplaced`."""
        return self._ask("unplaced", *arguments)

    def links(self, *arguments: Any) -> Any:
        """The workload's `links`."""
        return self._ask("links", *arguments)

    @property
    def alive(self) -> bool:
        """Whether there is anybody to answer."""
        return self._keeper.poll() is None

    def close(self) -> None:
        """Kills the host and every process that it has left."""
        self._connection.close()
        self._life.close()
        try:
            self._keeper.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _ask(self, what: str, *arguments: Any, at_least_s: float = 0.0) -> Any:
        """The answer to a request. A host that gives none, or to which nobody listens any more (Ctrl-C), is closed."""
        deadline = max(self._deadline, monotonic() + at_least_s)
        too_late = MeasurementError("timeout", f"{what}: not done after {self._limit_s:g} s")
        try:
            self._life.send(deadline + GRACE_S)
            self._connection.send((deadline, too_late, what, *arguments))
            answer = self._connection.recv()
            self._life.send(None)
        except (EOFError, OSError):
            raise too_late if monotonic() >= deadline + GRACE_S else self._gone(what) from None
        except BaseException:
            self.close()
            raise
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _gone(self, what: str) -> MeasurementError:
        """Why a host that was still in time has not answered."""
        try:
            with suppress(EOFError, OSError):  # of a keeper that is gone, too, or a host that is closed
                if self._life.poll(GRACE_S):
                    return ended(f"{what}: the process", self._life.recv())
            return MeasurementError("crash", f"{what}: the process doesn't answer any more")
        finally:
            self.close()


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

    def processor_ns(self) -> Any:
        return self._ask("processor_ns", self._number)

    def described(self) -> Any:
        return self._ask("described", self._number)

    def close(self) -> None:
        with suppress(MeasurementError):  # a host that is gone has closed it
            self._ask("close", self._number, at_least_s=GRACE_S)


def serve(connection: Connection) -> None:
    """The host's life: answers requests until its parent is gone."""
    life = _Life()
    while True:
        deadline, too_late, what, *arguments = connection.recv()
        bad_input = ValueError if what == "load" else PlanError
        connection.send(_in_time(partial(life.answer, what, *arguments), deadline, too_late, bad_input))


def _in_time(answer: Callable[[], Any], deadline: float, too_late: MeasurementError, bad_input: type[ValueError]) -> Any:
    """What `answer()` returns or raises (see `failure`), `too_late` where it waits at the deadline. In native code nothing but the keeper
    ends it.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise too_late

    signal.signal(signal.SIGALRM, stop)
    try:
        limit_memory()
        signal.setitimer(signal.ITIMER_REAL, max(1e-3, deadline - monotonic()))
        try:
            return answer()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            lift_memory_limit()
    except Exception as error:
        return failure(error, bad_input)


class _Life:
    """The workload, and the steps that were started and not closed."""

    def __init__(self) -> None:
        self._workload: Workload | None = None
        self._steps: dict[int, PlacedStep] = {}
        self._numbers = count()

    def answer(self, what: str, *arguments: Any) -> Any:
        """What one request asks for."""
        if what == "load":
            loader, given = arguments
            module, _, function = loader.partition(":")
            self._workload = getattr(importlib.import_module(module), function)(*given)
            return self._workload.graph
        assert self._workload is not None
        if what == "start":
            number = next(self._numbers)
            self._steps[number] = self._workload.start(*arguments)
            return number
        if what in ("as_run", "unplaced", "links"):
            return getattr(self._workload, what)(*arguments)
        number, *rest = arguments
        if what == "close":
            if number in self._steps:
                self._steps.pop(number).close()
            return None
        return getattr(self._steps[number], what)(*rest)
