"""Standard streams that are closed, full, or without a reader: what was asked for is written, and the status is as documented."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from faults.case import Case
from faults.commands import ABOUT, COMPARE, PLACE, TINY, damaged, prepare, temporaries
from faults.processes import Started
from support.fork_on_pair import IN

KIND = "streams"
PLACED = (*IN, "--placement", "placement.json")
TRAINED = "runs/unit-placer-1/checkpoint.safetensors"
COMMANDS: dict[str, tuple[tuple[str, ...], str | None]] = {  # with the file that each writes; they say what they do
    "train": (("train", "--problems=[[graph.json, cluster.json]]", *(word for word in TINY if word != "-q"), "--tracking=none"), TRAINED),
    "place": (PLACE[:-1], "placed.json"),
    "place --json": ((*PLACE, "--json"), "placed.json"),
    "simulate": (("simulate", *PLACED, "--picture", "step.svg"), "step.svg"),
    "explain": (("explain", *PLACED), None),
    "export": (("export", *PLACED, "--to", "dot", "-o", "placed.dot"), "placed.dot"),
    "compare": (COMPARE[:-1], "table.csv"),
    "clusters list": (("clusters", "list"), None),
    "clusters new": (("clusters", "new", "cluster.json", "-o", "new.json"), "new.json"),
    "graphs show": (("graphs", "show", "graph.json", "--cluster", "cluster.json", "--picture", "graph.svg"), "graph.svg"),
    "graphs import": (("graphs", "import", "graph.json", *ABOUT), "datasets/graphs/fork.arrow"),
    "graphs synthetic": (("graphs", "synthetic", "layered", "--ops=9", "-o", "made.json"), None),  # no donors here: bad input
    "bad input": (("place", "nowhere.json", "--cluster", "cluster.json"), None),
    "usage": (("place", "--nothing"), None),
    "help": (("place", "--help"), None),
}  # fmt: skip
STATUS = {"graphs synthetic": 4, "bad input": 4, "usage": 2}  # of commands that are not done
SILENT = {"export", "clusters new"}  # which print nothing
NAMES = "stdin", "stdout", "stderr"


def _closed(number: int) -> None:
    os.close(number)
    setattr(sys, NAMES[number], None)  # as Python has it where it starts so


def _full(number: int) -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), number)


def _left(number: int) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    os.dup2(theirs, number)


def _each(*deeds: tuple[Callable[[int], None], int]) -> None:
    for deed, number in deeds:
        deed(number)


STREAMS: dict[str, Callable[[], None]] = {
    "stdin closed": partial(_each, (_closed, 0)),
    "stdout closed": partial(_each, (_closed, 1)),
    "stderr closed": partial(_each, (_closed, 2)),
    "all closed": partial(_each, (_closed, 0), (_closed, 1), (_closed, 2)),
    "stdout full": partial(_each, (_full, 1)),
    "stderr full": partial(_each, (_full, 2)),
    "both full": partial(_each, (_full, 1), (_full, 2)),
    "no reader of stdout": partial(_each, (_left, 1)),
    "no reader of stderr": partial(_each, (_left, 2)),
}


def cases() -> Iterator[Case]:
    """Every command with every state of its streams."""
    for command in COMMANDS:
        yield from states(command)


def states(command: str) -> Iterator[Case]:
    """A command with every state of its streams."""
    for name in STREAMS:
        yield Case(KIND, f"{command}, {name}", partial(_broken, command, name))


def _broken(command: str, streams: str, folder: Path) -> str | None:
    prepare(folder)
    arguments, written = COMMANDS[command]
    started = Started(folder, arguments, STREAMS[streams])
    ended = started.wait()
    expected, full = STATUS.get(command, 0), f"gnnplace {arguments[0]}: stdout: {os.strerror(errno.ENOSPC)}"
    in_vain = expected == 0 and streams in ("stdout full", "both full") and command not in SILENT
    if ended.status != (4 if in_vain else expected):
        return f"status {ended.status}: {ended.err}"
    if in_vain and streams == "stdout full" and ended.err.splitlines()[-1] != full:
        return f"it says {ended.err}"
    if "Traceback" in ended.err or "Exception ignored" in ended.err:
        return ended.err
    if written is not None and not (folder / written).exists():
        return f"{written} is not written"
    return damaged(folder) or temporaries(folder) or started.left()
