"""Opens an untrusted file: it must be regular and not too large."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO


@contextmanager
def opened(path: str, most_bytes: int, rule: str) -> Iterator[BinaryIO]:
    """The file at `path`, to be read. Raises ValueError, with the rule, unless it is a regular file of 1 to `most_bytes` bytes.

    A pipe doesn't block. Raises OSError where the file can't be opened.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path}: is no regular file")
        if not 0 < status.st_size <= most_bytes:
            raise ValueError(f"{path}: {status.st_size} bytes; {rule}")
        yield file
