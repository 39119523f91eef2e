"""What every experiment's command says at its end: its table and, for `--json`, one line of figures."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments import results

Document = dict[str, Any]


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser of a command that ends with `show`."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", action="store_true", help="end with one JSON line")
    return made


def show(table: str, found: Document, chosen: argparse.Namespace, path: Path | None = None) -> None:
    """Prints the table, writes it to `path`, and ends with `found` where `--json` asks for it."""
    if path is not None:
        path.write_text(table)
    print(table)
    if chosen.json:
        print(json.dumps(found))


def benchmark(
    description: str | None, folder: Path, run: Callable[[int], Document], table: Callable[[Document], str], repeats: int
) -> None:
    """The command of a benchmark in `folder`: what `run(repeats)` finds is saved in its `results/` and shown."""
    taken = parser(description)
    taken.add_argument("--repeats", type=int, default=repeats, help="runs of each figure")
    taken.add_argument("--name", default=folder.name, help="the file in results/, without its ending")
    chosen = taken.parse_args()
    found = run(chosen.repeats)
    results.save(folder / "results" / f"{chosen.name}.json", found)
    show(table(found), found, chosen)
