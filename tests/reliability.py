"""What holds under fire: every case of damaged and hostile input, and of faults, one after another: `make reliability`.

A module of `MODULES` has `cases()`. A case of a package that is missing here is not made.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, runtime_checkable

MODULES = (
    "tests.hostile.cases",
    "faults.cases",
    "execution.operator_cases",
    "traps.cases",
    "caches.cases",
    "tests.values.cases",
    "faults.moments",
    "faults.streams",
    "faults.stores",
)


@runtime_checkable
class Case(Protocol):
    """One promise, tried once. `kind` is the row of the table, `name` what it is within it; both together are unique."""

    @property
    def kind(self) -> str: ...

    @property
    def name(self) -> str: ...

    def broken(self, folder: Path) -> str | None:
        """Tries it in a new folder: None where the promise held, else one line that says what broke."""
        ...


def cases(modules: Sequence[str] = MODULES) -> Iterator[Case]:
    """All cases of all modules."""
    for module in modules:
        yield from import_module(module).cases()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all cases, or those of some kinds, and prints a table of what was tried and what held; the status is 1 where something broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability", description=main.__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="run these alone")
    chosen = parser.parse_args(arguments)
    tried, held = Counter[str](), Counter[str]()
    for case in cases():
        if chosen.kinds and case.kind not in chosen.kinds:
            continue
        with tempfile.TemporaryDirectory() as folder:
            broken = case.broken(Path(folder) / "case")
        tried[case.kind] += 1
        held[case.kind] += broken is None
        if broken is not None:
            print(f"{case.kind}: {case.name}: {broken}", file=sys.stderr, flush=True)
    print("| kind | tried | held |\n|---|---|---|")
    for kind, count in tried.items():
        print(f"| {kind} | {count} | {held[kind]} |")
    print(f"| **all** | **{tried.total()}** | **{held.total()}** |")
    return int(held.total() < tried.total())


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # cases are forked, which threads of OpenMP don't survive
    sys.exit(main())
