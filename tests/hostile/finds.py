"""What fuzzing found, kept: each file of the folder `finds`, named KIND-... with the ending of its format, is a case."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.hostile.command_case import HostileFile
from tests.hostile.file_cases import OTHERS, READERS

FOLDER = Path(__file__).parent / "finds"


def cases() -> Iterator[HostileFile]:
    """Each find: it may be good or bad input, in one line."""
    for path in sorted(FOLDER.iterdir()):
        kind = path.name.partition("-")[0]
        if kind in READERS:
            file, arguments = READERS[kind]
            yield HostileFile(
                kind, f"found by fuzzing: {path.name}", arguments, OTHERS | {file: path.read_bytes()}, "", frozenset({0, 3, 4})
            )
