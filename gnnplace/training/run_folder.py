"""The folder of one training run: its configuration, checkpoint and placements, locked while a process trains in it.

The lock is the kernel's, so it goes with the process however that ends: a run whose folder is not locked has no process.
"""

from __future__ import annotations

import fcntl
import itertools
import shutil
from pathlib import Path

from gnnplace.formats import atomic
from gnnplace.training.checkpoint import FILE as CHECKPOINT

CONFIG, PLACEMENTS, LOCK = "config.yaml", "placements", "lock"
MEASUREMENTS, MEASURED, EXAMS = "measurements.jsonl", "measured.json", "exams.json"


class RunFolder:
    """A run's folder, locked until `close`; `create` makes a new one, `open_run` goes on with one, `followed` is another process's."""

    def __init__(self, path: Path, locked: bool = True) -> None:
        self.path = path
        self._lock = (path / LOCK).open("w") if locked else None
        if self._lock is None:
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            raise ValueError(f"{path}: another process trains this run; wait for it or stop it") from error

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    @property
    def measurements(self) -> Path:
        """Where a run that measures keeps what it measured."""
        return self.path / MEASUREMENTS

    @property
    def measured(self) -> Path:
        """Where such a run says what it came to."""
        return self.path / MEASURED

    @property
    def exams(self) -> Path:
        """Where a run keeps what the best heuristics take on its validation problems."""
        return self.path / EXAMS

    def placement(self, label: str) -> Path:
        """Where the best placement of the problem with this label is written."""
        return self.path / PLACEMENTS / f"{label}.json"

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def discard(self) -> None:
        """Removes the folder of a run that never began."""
        self.close()
        shutil.rmtree(self.path)


def create(runs: Path, name: str, config_yaml: str) -> RunFolder:
    """A new folder `name-1`, `name-2`, ... under `runs` with the resolved configuration. Raises OSError."""
    runs.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        path = runs / f"{name}-{number}"
        if not path.exists():
            path.mkdir()
            break
    (path / PLACEMENTS).mkdir()
    folder = RunFolder(path)
    atomic.write_text(folder.config, config_yaml)
    return folder


def open_run(path: Path) -> RunFolder:
    """The folder of an earlier run. Raises ValueError where it is none, holds no checkpoint, or is in use."""
    for needed in (path / CONFIG, path / CHECKPOINT):
        if not needed.is_file():
            raise ValueError(f"{path}: no run to go on with: there is no {needed.name}")
    return RunFolder(path)


def followed(path: Path) -> RunFolder:
    """The folder of a run of several processes, for those that write nothing there."""
    return RunFolder(path, locked=False)


def in_use(path: Path) -> bool:
    """Whether a process trains in this folder."""
    try:
        lock = (path / LOCK).open("r+")
    except FileNotFoundError:
        return False
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
