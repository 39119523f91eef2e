"""The child process that loads a workload and runs its placements: its crash, hang or lack of memory spares the parent.

`Host` is the parent's side. A failure in the child raises MeasurementError with its outcome, at most 5 s after the time
limit. A device process that hangs is killed, and the host goes on with the next placement. A host that hangs is killed
by its keeper. When the parent closes the host, or ends itself for any reason, the keeper kills the host and all its
descendants.
"""

from __future__ import annotations

import importlib
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from time import monotonic
from types import FrameType, TracebackType
from typing import Any

from gnnplace.execution.workload import PlanError, RunningStep, Workload
from gnnplace.graph import ComputationGraph
from gnnplace.isolation import python
from gnnplace.isolation.linux import lift_memory_limit, limit_memory
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.isolation.under_way import undone
from gnnplace.isolation.worker import failure, unexpected_end

GRACE_S = 2.0  # for a host to report its timeout and to stop its step


class Host:
    """A child process that holds the workload `loader(*arguments)`; `loader` is `package.module:function`.

    All requests share `limit_s` seconds from the start or from the last call of `allow`. A request that takes longer
    raises MeasurementError(timeout). Use it as a context manager: leaving it kills the process and its children.
    """

    def __init__(self, loader: str, *arguments: Any, limit_s: float) -> None:
        self.allow(limit_s)
        (life, its_life), (requests, its_requests) = socket.socketpair(), socket.socketpair()
        environment = {"TF_CPP_MIN_LOG_LEVEL": "2"} | python.environment(KINETO_LOG_LEVEL="99")
        passed = (its_life.fileno(), its_requests.fileno())
        command = python.command("-m", "gnnplace.execution.keeper", *map(str, passed))
        with its_life, its_requests:  # stdout is for results; a workload prints to stderr
            self._keeper = subprocess.Popen(
                command, pass_fds=passed, start_new_session=True, env=environment, stdin=subprocess.DEVNULL, stdout=2
            )
        self._life, self._connection = Connection(life.detach()), Connection(requests.detach())
        self._under_way = ExitStack()
        self._under_way.enter_context(undone(self.close))
        try:
            self.graph: ComputationGraph = self._ask("load", loader, arguments)
        except BaseException:
            self.close()
            raise

    def allow(self, limit_s: float) -> None:
        """Sets the time limit of the following requests: `limit_s` seconds from now."""
        self._limit_s, self._deadline = limit_s, monotonic() + limit_s

    def start(self, *arguments: Any) -> RunningStep:
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

    def tried(self, *arguments: Any) -> Any:
        """The workload's `tried`."""
        return self._ask("tried", *arguments)

    @property
    def alive(self) -> bool:
        """Whether the child is running."""
        return self._keeper.poll() is None

    def close(self) -> None:
        """Kills the child and all its descendants."""
        self._under_way.close()
        self._connection.close()
        self._life.close()
        try:
            self._keeper.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()

    def __enter__(self) -> Host:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, what: str, *arguments: Any, at_least_s: float = 0.0) -> Any:
        """The answer to a request. Closes the host if there is none or the wait is interrupted (Ctrl-C)."""
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
        """The error of a host that didn't answer although time was left."""
        try:
            with suppress(EOFError, OSError):  # the keeper is gone, too, or the host is closed
                if self._life.poll(GRACE_S):
                    return unexpected_end(f"{what}: the process", self._life.recv())
            return MeasurementError("crash", f"{what}: the process doesn't answer any more")
        finally:
            self.close()


class _RemoteStep:
    """A `RunningStep` in the host, by its number."""

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
        with suppress(MeasurementError):  # the end of a host closes its steps
            self._ask("close", self._number, at_least_s=GRACE_S)


def serve(connection: Connection) -> None:
    """Answers requests until the parent is gone."""
    life = _Life()
    while True:
        deadline, too_late, what, *arguments = connection.recv()
        bad_input = ValueError if what == "load" else PlanError
        connection.send(_in_time(partial(life.answer, what, *arguments), deadline, too_late, bad_input))


def _in_time(
    answer: Callable[[], Any], deadline: float, too_late: MeasurementError, bad_input: type[ValueError]
) -> Any:
    """The result of `answer()` or its error (see `failure`); `too_late` if the deadline passes.

    Native code isn't interrupted; only the keeper can end it.
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
    except Exception as error:  # the user's code, or a framework's
        return failure(error, bad_input)


class _Life:
    """The workload and its open placed steps."""

    def __init__(self) -> None:
        self._workload: Workload | None = None
        self._steps: dict[int, RunningStep] = {}
        self._numbers = count()

    def answer(self, what: str, *arguments: Any) -> Any:
        """The answer to one request."""
        if what == "load":
            loader, loader_arguments = arguments
            module, _, function = loader.partition(":")
            self._workload = getattr(importlib.import_module(module), function)(*loader_arguments)
            return self._workload.graph
        assert self._workload is not None
        if what == "start":
            number = next(self._numbers)
            self._steps[number] = self._workload.start(*arguments)
            return number
        if what in ("as_run", "unplaced", "links", "tried"):
            return getattr(self._workload, what)(*arguments)
        number, *rest = arguments
        if what == "close":
            if number in self._steps:
                self._steps.pop(number).close()
            return None
        return getattr(self._steps[number], what)(*rest)
