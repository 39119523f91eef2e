"""All faults: a kill, a full disk and a read-only one at every step of writing; kills at random times; two of everything at once."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from faults.case import Case
from faults.commands import COMMANDS, COMPARE, IMPORT, PLACE, SIGNALLED, TRAIN, UNTRACKED, Command, damaged, prepare, resumed, temporaries
from faults.injection import COUNT, FAULTS, KILL, fault
from faults.processes import Ended, Started

SIGNALS = {"SIGKILL": -9}  # those that a command hears: moments.py
TIMES = 8  # at which each command gets each signal
SEED = 0


def cases() -> Iterator[Case]:
    """Every case; those of a command are counted by running it once."""
    for command in COMMANDS:
        for kind in FAULTS:
            yield from at_every_step(command, kind)
    for name in SIGNALLED:
        for number in SIGNALS:
            yield from at_random_times(name, number)
    yield from at_once()


def at_every_step(command: Command, kind: str) -> Iterator[Case]:
    """A fault of a kind at each step of what a command writes."""
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        ended = Started(Path(folder), command.arguments, fault(kind, 0, Path(folder) / COUNT)).wait()
        assert ended.status == 0, ended.err
        steps = int((Path(folder) / COUNT).read_text())
    for step in range(1, steps + 1):
        yield Case(kind, f"{command.name}, step {step} of {steps}", partial(_broken_by_fault, command, kind, step))


def at_random_times(name: str, number: str) -> Iterator[Case]:
    """A signal to a command, at seeded times from its start to its end."""
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        begun = time.monotonic()
        ended = Started(Path(folder), SIGNALLED[name].arguments).wait()
        assert ended.status == 0, ended.err
        takes_s = time.monotonic() - begun
    drawn = random.Random(SEED)
    for _ in range(TIMES):
        share = drawn.random()
        yield Case(number, f"{name}, after {share:.0%} of its time", partial(_broken_by_signal, name, number, share * takes_s))


def at_once() -> Iterator[Case]:
    """Two of each command at once."""
    for name, first, second in (
        ("place, one file", PLACE, PLACE),
        ("imports", (*IMPORT, "--name=a"), (*IMPORT, "--name=b")),
        ("imports of one name", IMPORT, IMPORT),
        ("trainings", TRAIN, TRAIN),
        ("trainings without MLflow", UNTRACKED, UNTRACKED),
        ("compare, one table", COMPARE, COMPARE),
    ):
        yield Case("two at once", name, partial(_broken_by_two, first, second))
    yield Case("two at once", "one run resumed twice", _broken_by_two_resumed)


def _broken_by_fault(command: Command, kind: str, step: int, folder: Path) -> str | None:
    prepare(folder)
    cut = Started(folder, command.arguments, fault(kind, step))
    ended = cut.wait()
    if kind == KILL and ended.status != -signal.SIGKILL:
        return f"it was not killed: status {ended.status}"
    if kind != KILL and not in_one_line(ended, 4, os.strerror(FAULTS[kind])):
        return f"status {ended.status}: {ended.err}"
    return damaged(folder) or (kind != KILL and temporaries(folder)) or cut.left() or following(folder, command.again(folder))


def _broken_by_signal(name: str, number: str, after_s: float, folder: Path) -> str | None:
    prepare(folder)
    cut = Started(folder, SIGNALLED[name].arguments)
    time.sleep(after_s)
    if cut.running:
        cut.signal(getattr(signal, number))
    ended = cut.wait()
    if ended.status not in (0, SIGNALS[number]):
        return f"status {ended.status}: {ended.err}"
    return damaged(folder) or (ended.status == 0 and temporaries(folder)) or cut.left() or following(folder, SIGNALLED[name].again(folder))


def _broken_by_two(first: tuple[str, ...], second: tuple[str, ...], folder: Path) -> str | None:
    prepare(folder)
    both = [Started(folder, arguments) for arguments in (first, second)]
    ended = [each.wait() for each in both]
    for each in ended:
        if each.status != 0 and not (first is second is IMPORT and in_one_line(each, 4, "is in the corpus already")):
            return f"status {each.status}: {each.err}"
    if not any(each.status == 0 for each in ended):
        return "neither is done"
    left = damaged(folder) or temporaries(folder) or both[0].left() or both[1].left()
    return left or (_missing(folder, first) if first != second or first[0] == "train" else None)


def _missing(folder: Path, command: tuple[str, ...]) -> str | None:
    """What two trainings or imports should have left, and have not."""
    expected = [f"runs/unit-placer-{number}/checkpoint.safetensors" for number in (1, 2)]
    if command[0] != "train":
        expected = [f"datasets/graphs/{name}.arrow" for name in "ab"]
        listed = (folder / "datasets" / "manifest.json").read_text()
        if missing := [name for name in "ab" if f'"name": "{name}"' not in listed]:
            return f"the manifest lacks {missing}"
    missing = [name for name in expected if not (folder / name).exists()]
    return f"missing: {', '.join(missing)}" if missing else None


def _broken_by_two_resumed(folder: Path) -> str | None:
    prepare(folder)
    Started(folder, TRAIN, fault(KILL, 20)).wait()
    both = [Started(folder, resumed(folder)) for _ in range(2)]
    ended = [each.wait() for each in both]
    for each in ended:
        if each.status != 0 and not in_one_line(each, 4, "another process trains this run"):
            return f"status {each.status}: {each.err}"
    return None if any(each.status == 0 for each in ended) else "neither is done"


def following(folder: Path, arguments: tuple[str, ...]) -> str | None:
    """What is wrong with the next command, or left after it."""
    started = Started(folder, arguments)
    ended = started.wait()
    if ended.status != 0:
        return f"next, {' '.join(arguments[:3])}: status {ended.status}: {ended.err}"
    return damaged(folder) or temporaries(folder) or started.left()


def in_one_line(ended: Ended, status: int, words: str) -> bool:
    """Whether it ended in this status, and one line with these words."""
    return ended.status == status and ended.err.count("\n") == 1 and words in ended.err
