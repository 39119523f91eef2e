"""Work under way in this process: locks that exclude other processes, and what a signal has to undo.

A lock is the kernel's, so it ends with its process, however that ends.

A signal that ends the process at once (`gnnplace.start`) unwinds no stack; it calls what `undone` has registered. A
killed process undoes nothing. So whatever is registered here must be harmless if it stays: a temporary file that the
next process of that name removes, or a child that ends by itself a moment later.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

PathText = str | os.PathLike[str]

_UNDO: list[Callable[[], object]] = []


@contextmanager
def undone(undo: Callable[[], object]) -> Iterator[None]:
    """A context within which a signal that ends the process calls `undo`.

    The work may be unfinished or partly undone already when `undo` is called.
    """
    _UNDO.append(undo)
    try:
        yield
    finally:
        _UNDO.remove(undo)


@contextmanager
def temporary_folder() -> Iterator[str]:
    """The path of a new folder that is removed at the end of the context or of the process."""
    import shutil  # `gnnplace.start` imports this module before it handles signals, so nothing slow stands above
    import tempfile

    with tempfile.TemporaryDirectory() as folder, undone(lambda: shutil.rmtree(folder, ignore_errors=True)):
        yield folder


def undo_all() -> None:
    """Undoes everything that is under way, the latest first; an error stops none of the others."""
    for undo in reversed(_UNDO):
        with suppress(Exception):  # the process ends, and its one line is about the signal
            undo()


@contextmanager
def locked(path: PathText) -> Iterator[None]:
    """Waits for the lock at `path` and holds it within the context. An empty file exists while the lock is held.

    Raises OSError if the file can't be created.
    """
    while True:
        with open(path, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if leads_to(path, file.fileno()):
                with undone(partial(os.unlink, path)):
                    try:
                        yield
                    finally:
                        with suppress(FileNotFoundError):
                            os.unlink(path)
                return


def leads_to(path: PathText, descriptor: int) -> bool:
    """Whether `path` still names an open file.

    Another process may have removed the file between the moments when this one opened and locked it.
    """
    with suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    return False
