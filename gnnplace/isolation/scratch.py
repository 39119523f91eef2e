"""A temporary folder of one process: whatever libraries leave in it goes with it (PyTorch's compiled kernels, PyG's
generated code).

It is locked while its process runs. A killed process leaves it, and the next one removes it, since its lock has gone
with its process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from gnnplace.isolation.lock import leads_to
from gnnplace.isolation.under_way import undone

PREFIX = "gnnplace-"
# PyTorch writes down where it began; a folder that the user names stays
NAMED = "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "MPLCONFIGDIR"
HOMES = ("XDG_CONFIG_HOME", "~/.config"), ("XDG_CACHE_HOME", "~/.cache")


@contextmanager
def own_temporary_folder() -> Iterator[None]:
    """Has this process and its children use a temporary folder of their own,
    which is removed; the system's where none can be made.
    """
    before, where = {name: os.environ.get(name) for name in NAMED}, tempfile.tempdir
    try:
        _remove_stale(Path(tempfile.gettempdir()))
        path, lock = _made()
    except OSError:  # no temporary folder may be written, or it is full
        yield
        return
    try:
        os.environ["TMPDIR"], tempfile.tempdir = str(path), None
        if not all(map(_takes_files, HOMES if before["MPLCONFIGDIR"] is None else [("MPLCONFIGDIR", "")])):
            # else matplotlib makes a folder, and removes it when this one is gone
            os.environ["MPLCONFIGDIR"] = str(path)
        with undone(partial(shutil.rmtree, path, ignore_errors=True)):
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        tempfile.tempdir = where
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _takes_files(home: tuple[str, str]) -> bool:
    """Whether this process can make files in a home of settings or caches:
    the value of a variable, or a folder of the user's home.
    """
    name, usual = home
    place = os.environ.get(name) or os.path.expanduser(usual)
    while place and not os.path.exists(place):
        place = os.path.dirname(place)
    return bool(place) and os.access(place, os.W_OK | os.X_OK)


def _made() -> tuple[Path, int]:
    """A new folder and the descriptor that locks it."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if leads_to(path, lock):  # else another process took it for stale before it was locked
            return path, lock
        os.close(lock)


def _remove_stale(system: Path) -> None:
    """Removes the folders of this user's processes that are no more."""
    for path in system.glob(f"{PREFIX}*"):
        with suppress(OSError):  # in use, removed meanwhile, or no folder
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(descriptor).st_uid == os.getuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path)
            finally:
                os.close(descriptor)
