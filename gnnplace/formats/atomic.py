"""Files that are never half-written: a reader sees the old content or the new, whatever interrupts the writer.

What is written stands beside the file until it is whole, under a name `.NAME.XXXXXXXX.tmp` and locked. A killed writer
leaves it; the next one of that name removes it, since its lock has gone with its process.
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

from gnnplace.isolation.lock import leads_to
from gnnplace.isolation.under_way import undone

# whatever they lead to has been opened by somebody else
STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")
MOST_BYTES = 200  # of a name that its temporary repeats; a file system takes 255


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes `data` to a file beside `path`, flushes it to the disk and renames it over `path`, whose mode and owner
    stay.

    A link is followed. A device, a pipe or a stream (`/dev/null`, `/dev/stdout`) is written to as it is, as far as its
    reader reads. Raises OSError with `path`.
    """
    with _as_named(path):
        named = Path(path)
        if os.fspath(named).startswith(STREAMS) or (named.exists() and not named.is_file()):
            with suppress(BrokenPipeError), named.open("ab") as stream:
                stream.write(data)
            return
        target = Path(os.path.realpath(named))
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
    """`write_bytes` of a text in UTF-8."""
    write_bytes(path, text.encode())


def write_folder(path: str | os.PathLike[str], files: Mapping[str, str | bytes]) -> None:
    """Writes files into a new folder, which appears once it is whole; an empty one is filled.

    Raises OSError with `path`.
    """
    with _as_named(path):
        target = Path(os.path.realpath(path))
        with _temporary(target, _new_folder) as (temporary, _):
            for name, content in files.items():
                write_bytes(temporary / name, content.encode() if isinstance(content, str) else content)
            os.replace(temporary, target)
        _flush(target.parent)


@contextmanager
def _as_named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Has an OSError name what the user named, not a temporary of ours."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from error


@contextmanager
def _temporary(target: Path, make: Callable[[Path], int]) -> Iterator[tuple[Path, int]]:
    """What `make` makes beside `target`, locked, and its descriptor;
    unless it was renamed, it is removed in the end.
    """
    _remove_stale(target)
    while True:
        path = target.with_name(f"{_prefix(target)}{secrets.token_hex(4)}.tmp")
        with undone(partial(_remove, path)):
            descriptor = make(path)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if leads_to(path, descriptor):  # else another process took it for stale before it was locked
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
    """Removes the temporaries of `target` that no process holds."""
    ours = re.compile(re.escape(_prefix(target)) + r"[0-9a-f]{8}\.tmp")
    if not os.access(target.parent, os.R_OK):
        return
    for path in [target.with_name(name) for name in os.listdir(target.parent) if ours.fullmatch(name)]:
        # its writer is done, at work, or another user
        with suppress(FileNotFoundError, BlockingIOError, PermissionError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
            finally:
                os.close(descriptor)


def _keep_mode(target: Path, descriptor: int) -> None:
    """Gives a new file the mode and, where this process may, the owner of the one that it replaces."""
    with suppress(FileNotFoundError):
        before = os.stat(target)
        with suppress(PermissionError):
            os.fchown(descriptor, before.st_uid, before.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def _flush(folder: Path) -> None:
    """Has the names in a folder that may be read survive a loss of power."""
    if os.access(folder, os.R_OK):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
