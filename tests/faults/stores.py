"""MLflow's store under fire: a signal at any statement of its making, and stores that are damaged before a training begins."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from faults.case import Case
from faults.cases import SIGNALS, following, in_one_line
from faults.commands import TRAIN, UNTRACKED, damaged, prepare, resumed, temporaries
from faults.processes import Started
from support.mlflow_stores import DAMAGED, at_statement, half_made, whole

from gnnplace.training.run.mlflow_store import DATABASE

MOMENTS = 8  # of its making at which each signal comes
LISTENING = ExitStack()  # until the process ends
HALVES = 16  # at which MLflow's own making, in place, is cut off


def cases() -> Iterator[Case]:
    """Every case; the statements that make a store are counted by making one."""
    with tempfile.TemporaryDirectory() as folder, at_statement(0) as count:
        whole(Path(folder))
    for number in SIGNALS:
        for moment in range(MOMENTS):
            at = 1 + moment * (count[0] - 1) // (MOMENTS - 1)
            yield Case("a store's making", f"{number} at statement {at} of {count[0]}", partial(_broken_by_signal, number, at))
    for half in range(1, HALVES + 1):
        at = half * count[0] // (HALVES + 1)
        damage = partial(_half_made, at)
        yield Case("a damaged store", f"half-made, {at} of {count[0]} statements", partial(_broken_by_damage, damage, "is half-made"))
    for name, (damage, words) in DAMAGED.items():
        yield Case("a damaged store", name, partial(_broken_by_damage, damage, words))


def _half_made(at: int, path: Path, store: bytes) -> None:
    half_made(path, at)


def _broken_by_signal(number: str, at: int, folder: Path) -> str | None:
    prepare(folder)
    cut = Started(folder, TRAIN, lambda: _signal_at(getattr(signal, number), at))
    ended = cut.wait()
    killed = number == "SIGKILL" and ended.status == SIGNALS[number]
    if not killed and not in_one_line(ended, SIGNALS[number], "gnnplace train: "):
        return f"status {ended.status}: {ended.err}"
    if (folder / "runs" / DATABASE).exists():
        return "there is a store, and its making was cut off"
    return damaged(folder) or (not killed and temporaries(folder)) or cut.left() or following(folder, resumed(folder))


def _signal_at(number: int, at: int) -> None:
    LISTENING.enter_context(at_statement(at, lambda: os.kill(os.getpid(), number)))


def _broken_by_damage(damage: Callable[[Path, bytes], object], words: str, folder: Path) -> str | None:
    """A training that tracks is refused and leaves all as it was; one that does not runs; and all is well once the store is moved away."""
    prepare(folder)
    (folder / "runs").mkdir()
    path = folder / "runs" / DATABASE
    damage(path, whole(folder / "runs"))
    before = path.read_bytes() if path.is_file() else None
    refused = Started(folder, TRAIN)
    ended = refused.wait()
    if not in_one_line(ended, 4, words) or "move it away" not in ended.err:
        return f"status {ended.status}: {ended.err}"
    if os.listdir(folder / "runs") != [DATABASE] or before != (path.read_bytes() if path.is_file() else None):
        return f"not as it was: {os.listdir(folder / 'runs')}"
    if (without := Started(folder, UNTRACKED).wait()).status != 0:
        return f"without tracking: status {without.status}: {without.err}"
    path.rename(folder / "away")
    return refused.left() or following(folder, TRAIN)
