"""A clock that stops while Numba compiles, so that the first run after an installation has its whole budget.

Compiling every planner takes about a minute; later runs load the machine code.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from numba.core import event


@runtime_checkable
class Watcher(Protocol):
    """Its methods are called before and after each compilation of this process."""

    def begin(self) -> None: ...
    def end(self) -> None: ...


class _Compiling(event.Listener):
    """The seconds that compiling has taken by a clock; a compilation within another one counts once."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds, self._depth, self._start, self._clock = 0.0, 0, 0.0, clock
        self.watcher: Watcher | None = None
        event.register("numba:compile", self)

    def on_start(self, event: event.Event) -> None:
        if self._depth == 0:
            self._start = self._clock()
            if self.watcher is not None:
                self.watcher.begin()
        self._depth += 1

    def on_end(self, event: event.Event) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += self._clock() - self._start
            if self.watcher is not None:
                self.watcher.end()


_COMPILING, _PROCESSOR = _Compiling(time.monotonic), _Compiling(time.process_time)


def compiling_s() -> float:
    """The seconds that this process has spent compiling so far."""
    return _COMPILING.seconds


def watch_compiling(watcher: Watcher | None) -> None:
    """Sets the watcher of compilations; it replaces the one before. None removes it."""
    _COMPILING.watcher = watcher


def running_s() -> float:
    """The seconds of a wall clock, without compiling."""
    return time.monotonic() - _COMPILING.seconds


def processor_s() -> float:
    """The processor seconds of this process, without compiling."""
    return time.process_time() - _PROCESSOR.seconds
