"""A clock that stands still while numba compiles, so that the first run after an installation gets all of its budget,
too.

Compiling every planner takes about a minute; later runs load what was compiled.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from numba.core import event


@runtime_checkable
class Watcher(Protocol):
    """Is told before and after this process compiles, each time that it does."""

    def begin(self) -> None: ...
    def end(self) -> None: ...


class _Compiling(event.Listener):
    """The seconds of a clock that compiling has taken; a compilation within another one counts once."""

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
    """The seconds that this process has compiled so far."""
    return _COMPILING.seconds


def watch_compiling(watcher: Watcher | None) -> None:
    """Tells a watcher, in place of the one before, when this process compiles."""
    _COMPILING.watcher = watcher


def running_s() -> float:
    """The seconds of a wall clock less those of compiling."""
    return time.monotonic() - _COMPILING.seconds


def processor_s() -> float:
    """The processor seconds of this process less those of compiling."""
    return time.process_time() - _PROCESSOR.seconds
