"""Opens and reads an untrusted file, which must be regular and not too large, without waiting for a pipe's writer."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

STREAMS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")  # opened by whoever started this process
MOST_OF_A_STREAM = 2**28
PIECE_BYTES = 2**20  # a read allocates all the bytes that it asks for


@contextmanager
def opened(path: str, most_bytes: int, rule: str) -> Iterator[BinaryIO]:
    """The file at `path`, open for reading; a pipe doesn't block.

    Raises ValueError, with the rule, unless it is a regular file of 1 to `most_bytes` bytes; OSError if it can't be
    opened.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path}: is no regular file")
        if not 0 < status.st_size <= most_bytes:
            raise ValueError(f"{path}: {status.st_size} bytes; {rule}")
        yield file


def read(path: str, most_bytes: int) -> bytes:
    """The content of a regular file, or of a pipe or terminal that this process was given (`/dev/stdin`, `/dev/fd/63`).

    Raises ValueError, without the path, for any other kind of file and for more than `most_bytes` bytes (a pipe or
    terminal: more than `MOST_OF_A_STREAM`); OSError if the file can't be read.
    """
    stream = path.startswith(STREAMS)
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | (0 if stream else os.O_NONBLOCK))) as file:
        status = os.fstat(file.fileno())
        if not (stat.S_ISREG(status.st_mode) or (stream and (stat.S_ISFIFO(status.st_mode) or file.isatty()))):
            raise ValueError("is no regular file; what comes through a pipe is read as /dev/stdin or <(...)")
        limit = most_bytes if stat.S_ISREG(status.st_mode) else min(most_bytes, MOST_OF_A_STREAM)
        content, length = list[bytes](), status.st_size if status.st_size > limit else 0
        while length <= limit and (piece := file.read(PIECE_BYTES)):
            content.append(piece)
            length += len(piece)
    if length > limit:
        raise ValueError(f"longer than the {limit} bytes that this kind of document may have")
    return b"".join(content)
