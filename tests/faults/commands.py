"""Commands that write, in a folder that `prepare` fills, and what must hold in it whenever."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml
from support.fork_on_pair import CLUSTER, GRAPH, IN, PLACEMENT

from gnnplace.corpus import manifest
from gnnplace.training.run.checkpoint import FILE, policy_of
from gnnplace.training.run.folder import CONFIG
from gnnplace.training.run.mlflow_store import DATABASE, check

ABOUT = ("--family=toy", "--lineage=toy", "--source=made", "--licence=MIT", "--split=test", "--mode=training")
TINY = (
    "--policy=unit-placer", "--policy.units=ops", "--policy.width=4", "--policy.rounds=1", "--policy.hidden=4", "-q",
    "--training.placements=2", "--training.warm_start.updates=1", "--training.updates=1", "--training.checkpoint_every=1",
    "--training.threads=1",  # a fork has no threads of OpenMP, and waits for them for ever
)  # fmt: skip


@dataclass(frozen=True)
class Command:
    """A command, and the one that a user gives next where it was cut off."""

    name: str
    arguments: tuple[str, ...]
    again: Callable[[Path], tuple[str, ...]]


def prepare(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name, document in (("graph", GRAPH), ("cluster", CLUSTER), ("placement", PLACEMENT)):
        (folder / f"{name}.json").write_text(json.dumps(document))
    (folder / "datasets").mkdir()


PLACE = ("place", *IN, "--planner=heft", "-o", "placed.json", "-q")
IMPORT = ("graphs", "import", "graph.json", *ABOUT)
TRAIN = ("train", "--problems=[[graph.json, cluster.json]]", *TINY)
UNTRACKED = (*TRAIN, "--tracking=none")
COMPARE = ("compare", *IN, "--evaluations=9", "--csv", "table.csv", "-q")


def resumed(folder: Path) -> tuple[str, ...]:
    """Goes on with the run if it has begun."""
    run = folder / "runs" / "unit-placer-1"
    return ("train", "--resume", str(run), "-q") if (run / CONFIG).exists() else TRAIN


def imported_another(folder: Path) -> tuple[str, ...]:
    """Imports what is missing: the same graph, or where that is there one of another name."""
    os.environ["GNNPLACE_DATASETS"] = str(folder / "datasets")
    try:
        return (*IMPORT, "--name", "another") if "fork" in manifest.names() else IMPORT
    finally:
        os.environ.pop("GNNPLACE_DATASETS")


COMMANDS = (
    Command("place", PLACE, lambda folder: PLACE),
    Command("import", IMPORT, imported_another),
    Command("train", TRAIN, resumed),
)


def damaged(folder: Path) -> str | None:
    """The first file that is neither whole nor absent."""
    os.environ["GNNPLACE_DATASETS"] = str(folder / "datasets")
    try:
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")):
            if path.suffix == ".json":
                json.loads(path.read_text())
            elif path.suffix == ".yaml":
                assert isinstance(yaml.safe_load(path.read_text()), dict), "no map"
            elif path.name == FILE:
                policy_of(path)
            elif path.name == DATABASE:
                check(path.parent)
        for name in manifest.names():
            manifest.graph(name)
    except Exception as error:
        return f"damaged: {type(error).__name__}: {error}"
    finally:
        os.environ.pop("GNNPLACE_DATASETS")
    return None


def temporaries(folder: Path) -> str | None:
    """Temporaries of ours that are left."""
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name.endswith((".tmp", ".lock")))
    return f"left: {', '.join(found)}" if found else None


SIGNALLED = {
    "place": Command("place", (*PLACE[:4], "--evaluations=30", "-o", "placed.json", "-q"), lambda folder: PLACE),
    "compare": Command("compare", COMPARE, lambda folder: COMPARE),
    "import": COMMANDS[1],
    "train": COMMANDS[2],
}
