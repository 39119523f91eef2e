"""Printing of commands: values with units, lines, tables, one line of JSON, progress on stderr.

All text passes through `complaints.printable`, which escapes control characters.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gnnplace.complaints import printable

if TYPE_CHECKING:
    from rich.progress import Progress

Say = Callable[[str], None]
WIDTH_OF_A_FILE = 240
MOST_IN_A_CELL = 1000  # characters
NONE = "-"


def print_json(value: Any) -> None:
    """Prints a value as one line of JSON to stdout."""
    sys.stdout.write(json.dumps(value) + "\n")


def say(*lines: str) -> None:
    """Prints lines to stdout; without lines an empty one."""
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines or ("",)))


def warn(line: str) -> None:
    """Prints a line to stderr."""
    print(printable(line), file=sys.stderr, flush=True)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, most_width: int = WIDTH_OF_A_FILE
) -> None:
    """Prints a table to stdout, folded at the width of the terminal, or at `most_width` if stdout is a file.

    Columns after the first are right-aligned, and their headers may have several lines. The first header may be a name
    from a file, so it has one line, as all cells have.
    """
    from rich.box import SIMPLE_HEAD  # imported late: commands that print no table are done before rich is imported
    from rich.console import Console
    from rich.table import Table

    table = Table(
        box=SIMPLE_HEAD,
        title=None if title is None else printable(title),
        title_justify="left",
        show_edge=False,
        pad_edge=False,
    )
    for index, column in enumerate(columns):
        header = "\n".join(map(printable, column.split("\n"))) if index else printable(column)
        table.add_column(header, justify="right" if index else "left", overflow="fold")
    for row in rows:
        table.add_row(*(printable(cell, MOST_IN_A_CELL) for cell in row))
    text = io.StringIO()  # rich would end the program where stdout is a closed pipe
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else most_width
    Console(file=text, width=width, markup=False, highlight=False).print(table)  # names may hold brackets
    sys.stdout.write(text.getvalue())


def progress(quiet: bool) -> Say:
    """A function that prints lines of progress to stderr, or nothing if `quiet`."""
    return lambda line: None if quiet else warn(line)


class Wait:
    """Shows on stderr that something takes long: a line at its first beginning, and on a terminal a bar to its end."""

    def __init__(self, what: str, line: str) -> None:
        self._what, self._line = what, line
        self._bar: Progress | None = None

    def begin(self) -> None:
        """Shows the bar, whose clock runs since the first beginning."""
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TimeElapsedColumn

            progress(quiet=False)(self._line)
            columns = ("{task.description}", BarColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=Console(file=sys.stderr), transient=True, redirect_stdout=False)
            self._bar.add_task(self._what, total=None)
        if self._bar.console.is_terminal:
            self._bar.start()

    def end(self) -> None:
        """Removes the bar."""
        if self._bar is not None and self._bar.console.is_terminal:
            self._bar.stop()


def milliseconds(time_ns: int | None) -> str:
    """`12.345 ms`."""
    return NONE if time_ns is None else f"{ms(time_ns)} ms"


def ms(time_ns: int | None) -> str:
    """`12.345`, for a column of milliseconds."""
    return NONE if time_ns is None else f"{time_ns / 1e6:,.3f}"


def change(time_ns: int | None, before_ns: int) -> str:
    """`-12.3 %`, the change from one time to another."""
    return NONE if time_ns is None else f"{100 * (time_ns / before_ns - 1):+.1f} %"


def mebibytes(size: int | None) -> str:
    """`12.3 MiB`."""
    return NONE if size is None else f"{size / 2**20:,.1f} MiB"


def gibibytes(size: int) -> str:
    """`12.3 GiB`."""
    return f"{size / 2**30:,.1f} GiB"


def percent(share: float | None) -> str:
    """`12.3 %`."""
    return NONE if share is None else f"{100 * share:.1f} %"


def bounded(bound_ns: int, name: str, room: float | None) -> str:
    """A lower bound with its name and, if `room` is known, the largest possible gain of another placement."""
    if room == 0:
        return f"{milliseconds(bound_ns)} ({name}), reached: no placement is faster"
    gain = "" if room is None else f", a placement could still gain {percent(room)} at most"
    return f"{milliseconds(bound_ns)} ({name}){gain}"
