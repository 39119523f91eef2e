"""The process of a command: its signals and its standard streams, from before other imports to its end.

SIGINT and SIGTERM end the process at once. Their handler undoes what is under way (half-written files), prints one line
and exits with the status of docs/formats.md. It raises no exception: libraries would drop one during their import or
in a callback, or turn it into another. A signal that the parent process ignores stays ignored. A training run has
handlers of its own (`training.run.callbacks`).

A command finishes its work even if nobody reads its output. Text that stderr does not accept is lost; an error of
stdout is reported at the end. A closed standard stream is opened on the null device, so that no file gets its number.
"""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from io import BufferedWriter, FileIO, TextIOWrapper
from types import FrameType
from typing import Any

from gnnplace.complaints import printable
from gnnplace.isolation import under_way

ENDED = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
OVER_A_BAR = "\r\x1b[K\x1b[?25h"  # clears the line of a progress bar and shows the cursor
UNDOING_S = 10  # the most seconds of undoing before the process exits
DONE, BAD_INPUT = 0, 4  # as in `commands.usage`, which imports a parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, which owns this process, and returns its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    name = printable(f"gnnplace {words[0]}" if words and not words[0].startswith("-") else "gnnplace")
    signals = [number for number in ENDED if signal.getsignal(number) is not signal.SIG_IGN]
    # called last at exit: from then on signals are ignored, since Python's shutdown takes a while and the status stands
    atexit.register(_handle, signals, signal.SIG_IGN)
    _handle(signals, partial(_end, name, os.getpid()))
    out = _standard_streams()
    status = _run(words)
    sys.stdout.flush()
    # a reader that closed its pipe is no error
    if out.failed is not None and out.failed.errno != errno.EPIPE and status == DONE:
        print(f"{name}: stdout: {out.failed.strerror}", file=sys.stderr)
        status = BAD_INPUT
    _handle(signals, lambda number, frame: os._exit(status))
    return status


def _run(words: list[str]) -> int:
    from gnnplace.cli import main as command  # imported late, so that signals are handled during its imports

    try:
        return command(words)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)


def _handle(numbers: Sequence[signal.Signals], handler: Any) -> None:
    for number in numbers:
        signal.signal(number, handler)


def _end(name: str, process: int, number: int, frame: FrameType | None) -> None:
    """Ends this process at once; a forked child of the command prints nothing and undoes nothing."""
    if os.getpid() == process:
        _handle([*ENDED], signal.SIG_IGN)
        signal.signal(signal.SIGALRM, lambda *late: _leave(name, number))
        signal.alarm(UNDOING_S)
        under_way.undo_all()
        _leave(name, number)
    os._exit(128 + number)


def _leave(name: str, number: int) -> None:
    if os.environ.get("LOCAL_RANK", "0") == "0":  # of processes that train together only the first prints
        with suppress(OSError):
            line = f"{name}: {ENDED[signal.Signals(number)]}\n"
            os.write(2, f"{OVER_A_BAR if os.isatty(2) else ''}{line}".encode())
    os._exit(128 + number)


class _Stream(FileIO):
    """A stream whose writes never fail: its first error is kept in `failed`, and later output is lost."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.failed: OSError | None = None

    def write(self, data: Any) -> int:
        if self.failed is None:
            try:
                return super().write(data)
            except OSError as error:
                self.failed = error
        return len(data)


def _standard_streams() -> _Stream:
    """Opens closed standard streams, and makes writes to stdout and stderr never fail. Returns stdout's raw stream."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest free number: this one
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    out, err = _Stream(1), _Stream(2)
    sys.stdout, sys.stderr = (
        _text(each, getattr(before, "encoding", None)) for each, before in ((out, sys.stdout), (err, sys.stderr))
    )
    return out


def _text(stream: _Stream, encoding: str | None) -> TextIOWrapper:
    """A text stream as Python opens it, except that characters outside its encoding are escaped."""
    at_once = stream.fileno() == 2 or stream.isatty() or "PYTHONUNBUFFERED" in os.environ
    return TextIOWrapper(BufferedWriter(stream), encoding, "backslashreplace", line_buffering=at_once)
