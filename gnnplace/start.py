"""The process of a command, from before anything else is imported to its last moment: how signals end it, what its
standard streams do.

SIGINT and SIGTERM end the process where it stands. Their handler undoes what is under way, says one line, and leaves
with the status of docs/formats.md. It raises nothing: what is raised in a library that is imported, or calls back, is
dropped or becomes another error. A signal that whoever started the process ignores stays ignored. While it trains, a
run has handlers of its own (`training.interrupt`).

What is asked for is done though nobody hears of it: what stderr doesn't take is lost, and that stdout has not taken all
is said at the end. A standard stream that is closed leads nowhere from then on, so that no file gets its number.
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
OVER_A_BAR = "\r\x1b[K\x1b[?25h"  # the start of the line, which is cleared; the cursor is shown
UNDOING_S = 10  # until when a process that ends leaves, whatever is undone yet
DONE, BAD_INPUT = 0, 4  # as in `commands.usage`, which imports a parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command in this process, which is its own, and returns its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    name = printable(f"gnnplace {words[0]}" if words and not words[0].startswith("-") else "gnnplace")
    signals = [number for number in ENDED if signal.getsignal(number) is not signal.SIG_IGN]
    # the last that is called: Python's own end takes a while, and its status stands
    atexit.register(_handle, signals, signal.SIG_IGN)
    _handle(signals, partial(_end, name, os.getpid()))
    out = _standard_streams()
    status = _run(words)
    sys.stdout.flush()
    # a reader that has left is no error
    if out.failed is not None and out.failed.errno != errno.EPIPE and status == DONE:
        print(f"{name}: stdout: {out.failed.strerror}", file=sys.stderr)
        status = BAD_INPUT
    _handle(signals, lambda number, frame: os._exit(status))
    return status


def _run(words: list[str]) -> int:
    from gnnplace.cli import main as command  # what it imports is imported while signals are handled

    try:
        return command(words)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)


def _handle(numbers: Sequence[signal.Signals], handler: Any) -> None:
    for number in numbers:
        signal.signal(number, handler)


def _end(name: str, process: int, number: int, frame: FrameType | None) -> None:
    """Ends this process at once; where it is a fork of the command's, without a word."""
    if os.getpid() == process:
        _handle([*ENDED], signal.SIG_IGN)
        signal.signal(signal.SIGALRM, lambda *late: _leave(name, number))
        signal.alarm(UNDOING_S)
        under_way.undo_all()
        _leave(name, number)
    os._exit(128 + number)


def _leave(name: str, number: int) -> None:
    if os.environ.get("LOCAL_RANK", "0") == "0":  # of the processes that train together one speaks
        with suppress(OSError):
            line = f"{name}: {ENDED[signal.Signals(number)]}\n"
            os.write(2, f"{OVER_A_BAR if os.isatty(2) else ''}{line}".encode())
    os._exit(128 + number)


class _Stream(FileIO):
    """A stream that takes whatever it is given: after its first error, which is kept, all is lost."""

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
    """Opens those that are closed, and has stdout and stderr take everything. Returns what is beneath stdout."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free, so this
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    out, err = _Stream(1), _Stream(2)
    sys.stdout, sys.stderr = (
        _text(each, getattr(before, "encoding", None)) for each, before in ((out, sys.stdout), (err, sys.stderr))
    )
    return out


def _text(stream: _Stream, encoding: str | None) -> TextIOWrapper:
    """A stream of text as Python opens it, but that a character which its encoding lacks is escaped."""
    at_once = stream.fileno() == 2 or stream.isatty() or "PYTHONUNBUFFERED" in os.environ
    return TextIOWrapper(BufferedWriter(stream), encoding, "backslashreplace", line_buffering=at_once)
