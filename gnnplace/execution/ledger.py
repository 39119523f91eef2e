"""The ledger of measurements: an append-only file of JSON lines, each record found by its key.

`add` returns when the record is on disk. An incomplete line, left by a crash of the machine, is ignored with a warning.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]
KEY = "key"


class Ledger:
    """The records of a file; the first `add` creates it. Only one process at a time may write to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._records: dict[str, Record] = {}
        lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
        self._torn = lines[-1] != b""
        for number, line in enumerate(lines, start=1):
            if line:
                self._read(number, line)

    def _read(self, number: int, line: bytes) -> None:
        try:
            record = json.loads(line)
            self._records.setdefault(record[KEY], record)
        except (ValueError, KeyError, TypeError):
            warnings.warn(f"{self._path}: line {number} is not a complete record and is ignored", stacklevel=3)

    def find(self, key: str) -> Record | None:
        """The record of a key, or None."""
        return self._records.get(key)

    def add(self, key: str, record: Record) -> Record:
        """Appends a record and returns it as a later read would. Raises OSError if the file can't be written."""
        line = json.dumps({KEY: key, **record})
        before, self._torn = self._torn, True  # until the line is whole
        with self._path.open("ab") as file:
            file.write(b"\n" * before + line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._torn = False
        self._records[key] = json.loads(line)
        return self._records[key]

    def __iter__(self) -> Iterator[Record]:
        """All records, oldest first."""
        return iter(self._records.values())
