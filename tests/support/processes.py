"""Processes that bear a mark in their environment, and so can be found wherever they hide."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

MARK = "GNNPLACE_TEST_MARK"
# a machine may be busy with other work: what is quick ends sooner than each of these
LATE_S = 60.0  # to end
START_UP_S = 120.0  # to start
HUNG_S = 600  # to do all that a test does


@contextmanager
def marked() -> Iterator[str]:
    mark = uuid4().hex
    before, os.environ[MARK] = os.environ.get(MARK), mark
    try:
        yield mark
    finally:
        os.environ.pop(MARK)
        if before is not None:
            os.environ[MARK] = before


def children() -> set[int]:
    """The processes that this one has forked and not waited for, ended or not."""
    return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def alive(mark: str) -> set[int]:
    """The processes that bear the mark and have not ended."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.add(int(folder.name))
        except (PermissionError, FileNotFoundError, ProcessLookupError):
            continue
    return found
