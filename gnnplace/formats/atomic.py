"""Files that are never half-written: a reader sees the old content or the new, whatever interrupts the writer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")  # whatever they lead to has been opened by somebody else


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes `data` to a file beside `path`, flushes it to the disk and renames it over `path`; a link is followed.

    A device, a pipe or a stream (`/dev/null`, `/dev/stdout`) is written to as it is. Raises OSError.
    """
    named = Path(path)
    if os.fspath(named).startswith(STREAMS) or (named.exists() and not named.is_file()):
        with named.open("ab") as stream:
            stream.write(data)
        return
    target = Path(os.path.realpath(named))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(named)) from error  # the name that the user knows
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """`write_bytes` of a text in UTF-8."""
    write_bytes(path, text.encode())


def write_folder(path: str | os.PathLike[str], files: Mapping[str, str | bytes]) -> None:
    """Writes files into a new folder, which appears once it is whole. Raises OSError, also where the folder exists and is not empty."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir()
        for name, content in files.items():
            write_bytes(temporary / name, content.encode() if isinstance(content, str) else content)
        temporary.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
