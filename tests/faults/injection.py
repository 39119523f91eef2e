"""Faults at the n-th step of writing: what `formats.atomic` asks the system for is counted, and one call of it dies or fails."""

from __future__ import annotations

import errno
import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gnnplace.formats import atomic

KILL = "kill -9"
FAULTS = {KILL: 0, "disk full": errno.ENOSPC, "read-only": errno.EROFS}
STEPS = "open", "fsync", "replace", "fdopen"
COUNT = "steps.txt"


class Faulty:
    """The module `os` as `formats.atomic` sees it: each step is counted, and step `at` (from 1; 0: none) is the fault's."""

    def __init__(self, fault: str, at: int, counted: Path | None = None) -> None:
        self._fault, self._at, self._steps, self._counted = fault, at, 0, counted

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return self._counting(found) if name in STEPS else found

    def _counting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            if call is os.fdopen:
                return Written(self.step, call(*arguments, **named))
            self.step()
            return call(*arguments, **named)

        return counted

    def step(self) -> None:
        """Counts a step, or lets it be the last."""
        self._steps += 1
        if self._counted is not None:
            self._counted.write_text(str(self._steps))
        if self._steps != self._at:
            return
        if self._fault == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        number = FAULTS[self._fault]
        raise OSError(number, os.strerror(number))


class Written:
    """A file whose content is half there when the fault comes."""

    def __init__(self, step: Callable[[], None], file: io.BufferedWriter) -> None:
        self._step, self._file = step, file

    def write(self, data: bytes) -> None:
        half = len(data) // 2
        self._file.write(data[:half])
        self._file.flush()
        self._step()
        self._file.write(data[half:])

    def flush(self) -> None:
        self._file.flush()

    def __enter__(self) -> Written:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def fault(kind: str, at: int, counted: Path | None = None) -> Callable[[], None]:
    """What a process does before a command so that the fault comes at step `at` of its writing."""

    def begin() -> None:
        atomic.os = Faulty(kind, at, counted)  # type: ignore[assignment]

    return begin
