"""A case of hostile input: files in a folder, a command that reads them, and how it has to end."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gnnplace.complaints import MOST_CHARACTERS
from tests.hostile import confined

BAD_INPUT = frozenset({4})
OUTPUT = "out.json"
EXECUTED = "executed"
BAIT = f"open({EXECUTED!r}, 'w').close()\n"
BAITS = {f"{name}.py": BAIT for name in ("json", "yaml", "onnx", "torch", "safetensors", "tensorflow", "pickle", "sitecustomize", "numpy")}
Files = Mapping[str, bytes]


@dataclass(frozen=True)
class HostileFile:
    """`gnnplace ARGUMENTS` where FILES lie: it ends with one of `statuses`, and where that is not 0, in one line that has the `words`.

    `prepare` makes what is no plain file. Nothing but the files may be opened, and nothing that lies beside them is run.
    """

    kind: str
    name: str
    arguments: tuple[str, ...]
    files: Files
    words: str = ""  # a regular expression
    statuses: frozenset[int] = BAD_INPUT
    opened: tuple[str, ...] = ()  # what the files name, and may be opened
    prepare: Callable[[Path], None] = lambda folder: None
    cpu_s: int = 30
    memory_bytes: int = 2**31

    def broken(self, folder: Path) -> str | None:
        folder.mkdir()
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        for name, bait in BAITS.items():
            (folder / name).write_text(bait)
        self.prepare(folder)
        before = _files(folder)
        named = [*self.files, *self.opened, OUTPUT, *(each.partition(":")[0] for each in self.arguments if not each.startswith("-"))]
        ended = confined.run(self.arguments, folder, named, self.cpu_s, self.memory_bytes)
        left = {path.name for path in _files(folder) - before} - ({OUTPUT} if ended.status == 0 else set())
        return self._fault(ended) or (f"left {sorted(left)}" if left else None)

    def _fault(self, ended: confined.Ended) -> str | None:
        said = ended.err[:500].replace("\n", " | ")
        if ended.status < 0:
            return f"killed by {signal.Signals(-ended.status).name}, as a limit of time or memory does"
        if ended.status not in self.statuses:
            return f"ended with {ended.status}, due is {sorted(self.statuses)}: {ended.err[-500:].replace(chr(10), ' | ')}"
        if ended.seen:
            return f"did what it must not do: {ended.seen[:300]}"
        if any(not line.isprintable() for line in (ended.out + ended.err).split("\n")):
            return f"printed what is not printable: {said!r}"
        if ended.status == 0:
            return None
        if ended.err.count("\n") != 1 or ended.out or len(ended.err) > MOST_CHARACTERS + 100:
            return f"{ended.err.count(chr(10))} lines of {len(ended.err)} characters instead of one: {said}"
        if not ended.err.startswith("gnnplace "):
            return f"does not say which command: {said}"
        return None if re.search(self.words, ended.err) else f"{self.words!r} is not said: {said}"


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if not path.is_dir()}
