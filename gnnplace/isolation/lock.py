"""Locks between processes. They are the kernel's, so each goes with its process however that ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from gnnplace.isolation.under_way import undone

PathText = str | os.PathLike[str]


@contextmanager
def locked(path: PathText) -> Iterator[None]:
    """Holds the lock at `path` within the context, and waits for it before. There is an empty file while it is held.

    Raises OSError where the file can't be made.
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
    """Whether `path` is that of an open file still: its process may have
    removed what this one has just opened and locked.
    """
    with suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    return False
