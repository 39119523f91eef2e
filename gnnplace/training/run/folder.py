"""The folder of one training run: its configuration, checkpoint and placements, locked while a process trains in it.

The lock is the kernel's, so it goes with the process however that ends: a run whose folder is not locked has no
process.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import shutil
from contextlib import suppress
from pathlib import Path

from gnnplace.formats import atomic
from gnnplace.isolation.under_way import leads_to
from gnnplace.training.run.checkpoint import FILE as CHECKPOINT

CONFIG, PLACEMENTS, LOCK = "config.yaml", "placements", "lock"
MEASUREMENTS, MEASURED, EXAMS = "measurements.jsonl", "measured.json", "exams.json"
RESULTS = "results.csv"


class InUseError(ValueError):
    """Another process trains in the folder."""


class RunFolder:
    """A run's folder, locked until `close`.

    `create` makes a new one, `open_run` continues one, `followed` belongs to another process.
    """

    def __init__(self, path: Path, locked: bool = True) -> None:
        self.path = path
        self._lock = (path / LOCK).open("w") if locked else None
        if self._lock is None:
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            raise InUseError(f"{path}: another process trains this run; wait for it or stop it") from error
        if not leads_to(path / LOCK, self._lock.fileno()):
            self._lock.close()
            raise FileNotFoundError(errno.ENOENT, "was removed meanwhile", str(path))

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    @property
    def begun(self) -> bool:
        """Whether there is a checkpoint to continue from; otherwise a run starts from its configuration."""
        return self.checkpoint.is_file()

    @property
    def placements(self) -> Path:
        return self.path / PLACEMENTS

    @property
    def measurements(self) -> Path:
        """The file with the measurements of a run that measures."""
        return self.path / MEASUREMENTS

    @property
    def measured(self) -> Path:
        """The file with the comparisons of such a run."""
        return self.path / MEASURED

    @property
    def exams(self) -> Path:
        """The file with the best heuristics' step times on the validation problems."""
        return self.path / EXAMS

    @property
    def results(self) -> Path:
        """The file with a row for each of many problems."""
        return self.path / RESULTS

    def placement(self, label: str) -> Path:
        """The file of the best placement of the problem with this label."""
        return self.placements / f"{label}.json"

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def discard(self) -> None:
        """Removes the folder of a run that never began."""
        shutil.rmtree(self.path)
        self.close()


def create(runs: Path, name: str, config_yaml: str) -> RunFolder:
    """A locked folder `name-1`, `name-2`, ... under `runs`, with the resolved configuration.

    It is the first that is new, or that a killed run left without a configuration. Raises OSError, and leaves no folder
    then.
    """
    runs.mkdir(parents=True, exist_ok=True)
    tried = (_taken(runs / f"{name}-{number}") for number in itertools.count(1))
    folder = next(attempt for attempt in tried if attempt is not None)
    try:
        folder.placements.mkdir(exist_ok=True)
        atomic.write_text(folder.config, config_yaml)
    except BaseException:
        folder.discard()
        raise
    return folder


def _taken(path: Path) -> RunFolder | None:
    """The folder at `path`, locked; None if it is a run's or somebody else's, or another process has just locked it."""
    if path.exists() and not _is_husk(path):
        return None
    path.mkdir(exist_ok=True)
    with suppress(InUseError, FileNotFoundError):
        folder = RunFolder(path)
        if not folder.config.exists():
            return folder
        folder.close()
    return None


def _is_husk(path: Path) -> bool:
    """Whether a folder holds nothing but the beginning of a run, without a configuration."""
    if not path.is_dir():
        return False
    names = [entry.name for entry in path.iterdir()]
    return all(name in (LOCK, PLACEMENTS) or name.startswith(f".{CONFIG}.") for name in names) and not any(
        (path / PLACEMENTS).glob("*")
    )


def open_run(path: Path) -> RunFolder:
    """The folder of an earlier run; without a checkpoint it starts again.

    Raises ValueError if there is no run, or it is in use.
    """
    config_of(path)
    folder = RunFolder(path)
    folder.placements.mkdir(exist_ok=True)
    return folder


def config_of(path: Path) -> Path:
    """The configuration of an earlier run. Raises ValueError if there is none."""
    if not (path / CONFIG).is_file():
        raise ValueError(
            f"{path}: no run to go on with: there is no {CONFIG}; a new run takes what one left that had not begun"
        )
    return path / CONFIG


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
