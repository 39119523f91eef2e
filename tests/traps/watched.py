"""Runs a command where traps are, and says which of them it opened, listed, imported or ran.

Python tells by its audit hooks (`sitecustomize.py`, which all Pythons of the command import). What C opens, `strace` tells, on machines
that have it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

STRACE = shutil.which("strace")
TRACED = "open,openat,openat2,execve,execveat"
CALL = re.compile(r'^\d+ +(?:open|exec)\w*\((?:AT_FDCWD<(?P<at>[^>]*)>, |\d+<(?P<below>[^>]*)>, )?"(?P<path>(?:[^"\\]|\\.)*)"')
TEMPORARY = re.compile(r"/\.[^/]*\.[0-9a-f]{8}\.tmp$")
LIMIT_S = 1200


class Ended(NamedTuple):
    """How a command ended, what it printed on stderr, what it did to which path, and the names of modules that it tried to import."""

    status: int
    err: str
    seen: frozenset[tuple[str, str]]
    imported: frozenset[str]


def run(command: Sequence[str], folder: Path, notes: Path, **environment: str) -> Ended:
    """A command in a folder; `notes` is another one. Without `strace` what C opens is not seen."""
    notes.mkdir()
    seen, calls = notes / "seen", notes / "calls"
    seen.touch()
    traced = [STRACE, "-f", "-qq", "-y", "--seccomp-bpf", "-s", "4096", "-e", f"trace={TRACED}", "-o", str(calls)] if STRACE else []
    variables = os.environ | {"SEEN": str(seen), "PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"} | environment
    done = subprocess.run([*traced, *command], cwd=folder, env=variables, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    lines = [line.partition("\t") for line in seen.read_text(errors="surrogateescape").splitlines()]
    noted = {(what, path) for what, _, path in lines if what != "imported"} | set(_opened_by_c(calls))
    return Ended(done.returncode, done.stderr, frozenset(noted), frozenset(name for what, _, name in lines if what == "imported"))


def _opened_by_c(calls: Path) -> Iterator[tuple[str, str]]:
    for line in calls.read_text(errors="surrogateescape").splitlines() if calls.exists() else ():
        if (call := CALL.match(line)) is not None:
            yield "opened", os.path.normpath(os.path.join(call["at"] or call["below"] or "/", call["path"]))


def trapped(ended: Ended, here: Path, written: Sequence[str]) -> list[str]:
    """What a command did in its folder `here`, and in the one above, but to what it writes; to list `here` is no harm."""
    own = tuple(str(here / name) for name in written)
    within = [(what, path) for what, path in sorted(ended.seen) if path.startswith(f"{here.parent}{os.sep}") and path != str(here)]
    return [f"{what} {path}" for what, path in within if not path.startswith(own) and not TEMPORARY.search(path)]
