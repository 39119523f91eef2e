"""Files that are never half-written: a reader sees the old content or the new, whatever interrupts the writer.

New content goes to a locked temporary file `.NAME.XXXXXXXX.tmp` beside the target, which is renamed once it is
complete. A killed writer leaves its temporary behind without a lock; the next writer of that name removes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from gnnplace.isolation.under_way import leads_to, undone

# streams that another process has opened for this one
STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")
MOST_BYTES = 200  # the longest name that a temporary's name repeats; file systems allow 255


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes `data` to a file beside `path`, flushes it to the disk and renames it over `path`.

    Mode and owner of `path` stay. A link is followed. A device, a pipe or a stream (`/dev/null`, `/dev/stdout`) is
    written to directly, until its reader stops. Raises OSError with `path`.
    """
    with _as_named(path):
        destination = Path(path)
        if os.fspath(destination).startswith(STREAMS) or (destination.exists() and not destination.is_file()):
            with suppress(BrokenPipeError), destination.open("ab") as stream:
                stream.write(data)
            return
        target = Path(os.path.realpath(destination))
        with (
            _temporary(target, _new_file) as (temporary, descriptor),
            os.fdopen(descriptor, "wb", closefd=False) as file,
        ):
            _keep_mode(target, descriptor)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
            os.replace(temporary, target)
        _flush(target.parent)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a text in UTF-8, as `write_bytes` does."""
    write_bytes(path, text.encode())


def write_folder(path: str | os.PathLike[str], files: Mapping[str, str | bytes]) -> None:
    """Writes files to a new or empty folder, which appears once all of them are written. Raises OSError with `path`."""
    with _as_named(path):
        target = Path(os.path.realpath(path))
        with _temporary(target, _new_folder) as (temporary, _):
            for name, content in files.items():
                write_bytes(temporary / name, content.encode() if isinstance(content, str) else content)
            os.replace(temporary, target)
        _flush(target.parent)


@contextmanager
def _as_named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Makes an OSError name the user's path, not our temporary file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from error


@contextmanager
def _temporary(target: Path, make: Callable[[Path], int]) -> Iterator[tuple[Path, int]]:
    """Path and descriptor of a locked file or folder that `make` creates beside `target`.

    It is removed at the end of the context unless it has been renamed.
    """
    _remove_stale(target)
    while True:
        path = target.with_name(f"{_prefix(target)}{secrets.token_hex(4)}.tmp")
        with undone(partial(_remove, path)):
            descriptor = make(path)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if leads_to(path, descriptor):  # else another process removed it as stale before it was locked
                    yield path, descriptor
                    return
            finally:
                _remove(path)
                os.close(descriptor)


def _new_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)


def _new_folder(path: Path) -> int:
    path.mkdir()
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _prefix(target: Path) -> str:
    name = os.fsencode(target.name)
    return f".{target.name if len(name) <= MOST_BYTES else hashlib.sha256(name).hexdigest()[:16]}."


def _remove_stale(target: Path) -> None:
    """Removes the temporaries of `target` that no process has locked."""
    temporary_name = re.compile(re.escape(_prefix(target)) + r"[0-9a-f]{8}\.tmp")
    if not os.access(target.parent, os.R_OK):
        return
    for path in [target.with_name(name) for name in os.listdir(target.parent) if temporary_name.fullmatch(name)]:
        # the writer has finished, is still writing, or is another user
        with suppress(FileNotFoundError, BlockingIOError, PermissionError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
            finally:
                os.close(descriptor)


def _keep_mode(target: Path, descriptor: int) -> None:
    """Gives a new file the mode and, if permitted, the owner of the file that it replaces."""
    with suppress(FileNotFoundError):
        before = os.stat(target)
        with suppress(PermissionError):
            os.fchown(descriptor, before.st_uid, before.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def _flush(folder: Path) -> None:
    """Flushes the names in a folder to the disk, so that they survive a loss of power (if the folder is readable)."""
    if os.access(folder, os.R_OK):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
