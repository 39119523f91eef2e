"""A temporary folder for one process, removed with everything that libraries leave in it.

PyTorch leaves compiled kernels there, PyG generated code. The folder is locked while its process runs. A killed process
leaves its folder behind without a lock; the next process removes it.
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

from gnnplace.isolation.under_way import leads_to, undone

PREFIX = "gnnplace-"
# restored at the end: PyTorch sets its cache folder itself; a folder that the user has named stays
VARIABLES = "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "MPLCONFIGDIR"
HOMES = ("XDG_CONFIG_HOME", "~/.config"), ("XDG_CACHE_HOME", "~/.cache")


@contextmanager
def own_temporary_folder() -> Iterator[None]:
    """Gives this process and its children a temporary folder, which is removed at the end of the context.

    If none can be created, they use the system's.
    """
    before, tempdir_before = {name: os.environ.get(name) for name in VARIABLES}, tempfile.tempdir
    try:
        _remove_stale(Path(tempfile.gettempdir()))
        path, lock = _new_folder()
    except OSError:  # the system's temporary folder is read-only or full
        yield
        return
    try:
        os.environ["TMPDIR"], tempfile.tempdir = str(path), None
        if not all(map(_takes_files, HOMES if before["MPLCONFIGDIR"] is None else [("MPLCONFIGDIR", "")])):
            # otherwise matplotlib creates a folder itself and tries to remove it after this one has gone
            os.environ["MPLCONFIGDIR"] = str(path)
        with undone(partial(shutil.rmtree, path, ignore_errors=True)):
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        tempfile.tempdir = tempdir_before
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _takes_files(home: tuple[str, str]) -> bool:
    """Whether this process can create files in a folder: the value of a variable, or else a default."""
    variable, default = home
    folder = os.environ.get(variable) or os.path.expanduser(default)
    while folder and not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return bool(folder) and os.access(folder, os.W_OK | os.X_OK)


def _new_folder() -> tuple[Path, int]:
    """A new folder and the descriptor that locks it."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if leads_to(path, lock):  # else another process removed it as stale before it was locked
            return path, lock
        os.close(lock)


def _remove_stale(system: Path) -> None:
    """Removes the folders that this user's ended processes have left."""
    for path in system.glob(f"{PREFIX}*"):
        with suppress(OSError):  # in use, removed meanwhile, or not a folder
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(descriptor).st_uid == os.getuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path)
            finally:
                os.close(descriptor)
