"""A function called in a forked process with limits of time and memory; the process dies with its children."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple

READY = b"\0"


class Answer(NamedTuple):
    """What the function returned (None if it did not), whether it said that it was ready, and how the process ended."""

    value: Any
    ready: bool
    ended: str
    seconds: float


def limited(call: Callable[[Callable[[], None]], Any], seconds: float, memory_bytes: int) -> Answer:
    """Calls `call(ready)` in a forked process; its value travels as JSON. `seconds` limit it before `ready`, and after."""
    start = time.monotonic()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _serve(call, writing, memory_bytes)
    os.close(writing)
    try:
        text, ended = _read(reading, seconds)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    value = text.replace(READY, b"")
    if not ended:
        code = os.waitstatus_to_exitcode(status)
        ended = "" if value else f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    return Answer(json.loads(value) if value else None, READY in text, ended, time.monotonic() - start)


def _read(reading: int, seconds: float) -> tuple[bytes, str]:
    """All that the process writes, and "hung" if it reached its limit first."""
    text, until = b"", time.monotonic() + seconds
    while True:
        if not select.select([reading], [], [], max(0.0, until - time.monotonic()))[0]:
            return b"" if READY not in text else READY, f"takes more than {seconds:g} s"
        part = os.read(reading, 65536)
        if not part:
            return text, ""
        if part == READY:
            until = time.monotonic() + seconds
        text += part


def _serve(call: Callable[[Callable[[], None]], Any], writing: int, memory_bytes: int) -> None:
    """Never returns; what the network prints goes nowhere."""
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        value = call(lambda: _write(writing, READY))
        _write(writing, json.dumps(value).encode())
    finally:
        os._exit(0)


def _write(writing: int, text: bytes) -> None:
    while text:
        text = text[os.write(writing, text) :]
