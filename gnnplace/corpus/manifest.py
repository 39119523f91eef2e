"""The corpus: graphs in `datasets/graphs/`, described by `datasets/manifest.json`, found by name and checked by
checksum.

`datasets/` comes with the package; the environment variable GNNPLACE_DATASETS names another folder.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from gnnplace import package_data
from gnnplace.corpus import splits, store
from gnnplace.corpus.splits import Split
from gnnplace.formats import atomic, strict_json
from gnnplace.graph import ComputationGraph
from gnnplace.isolation.lock import locked
from gnnplace.isolation.under_way import undone

MAX_MANIFEST_BYTES = 16 * 2**20

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
Text = Annotated[str, Field(min_length=1, max_length=1000)]


class Entry(strict_json.Document):
    """One graph of the corpus. `lineage` groups networks that are made alike, the unit of splits; `builder` is the
    script that makes it.

    `builder_version` names the package, with its version, that the builder captured the graph with: another may capture
    other ops.
    """

    name: Name
    family: Text
    lineage: Text
    split: Split
    mode: Literal["training", "inference"]
    source: Text
    ops: Annotated[int, Field(ge=1)]
    edges: Annotated[int, Field(ge=0)]
    licence: Text
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    builder: Text
    builder_version: Text


class Manifest(strict_json.Document):
    """`datasets/manifest.json`."""

    format: Literal["gnnplace.manifest"] = "gnnplace.manifest"
    version: Literal[1] = 1
    graphs: list[Entry]


def folder() -> Path:
    """The folder of the datasets."""
    named = os.environ.get("GNNPLACE_DATASETS")
    return Path(named) if named else package_data.folder("datasets")


def installed() -> bool:
    """Whether the corpus is the one of an installed package: it stays as it
    is, and the scripts that build its graphs are not there.
    """
    return folder() == package_data.INSTALLED / "datasets"


def check_writable() -> None:
    """Raises ValueError where nothing is added to the corpus: where it is the one of an installed package."""
    if installed():
        copy = f"cp -r {folder()} my-datasets; export GNNPLACE_DATASETS=my-datasets"
        raise ValueError(f"{folder()}: the corpus of an installed package is not changed; add to a copy of it: {copy}")


def entries() -> tuple[Entry, ...]:
    """Every graph of the corpus, by name.

    Raises ValueError for a bad manifest; without a manifest the corpus is empty.
    """
    path = folder() / "manifest.json"
    if not path.exists():
        return ()
    found = strict_json.read(path, Manifest, lambda manifest: manifest.graphs, MAX_MANIFEST_BYTES)
    names = [entry.name for entry in found]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"{path}: graphs[{index}].name: {name!r} is not unique")
    _check_splits(path, found)
    return tuple(sorted(found, key=lambda entry: entry.name))


def names() -> tuple[str, ...]:
    """The names of the graphs, sorted."""
    return tuple(entry.name for entry in entries())


def entry(name: str) -> Entry:
    """The entry of a graph. Raises ValueError with the names that there are."""
    for candidate in entries():
        if candidate.name == name:
            return candidate
    raise ValueError(strict_json.unknown(f"graph of the corpus in {folder()}", name, names()))


def graph(name: str) -> ComputationGraph:
    """The graph called `name`. Raises ValueError where it is unknown, damaged or not the one of the manifest."""
    described = entry(name)
    path = _path(name)
    found = store.load(path)
    if found.sha256 != described.sha256:
        rebuild = f"rebuild it with {described.builder} ({described.builder_version})"
        raise ValueError(f"{path}: sha256 {found.sha256} is not the manifest's {described.sha256}; {rebuild}")
    return found


def add(
    graph: ComputationGraph, *, family: str, lineage: str, split: str, mode: str, source: str, licence: str,
    builder: str,
    builder_version: str, replaces: bool = True,
) -> Entry:  # fmt: skip
    """Writes the graph's file, then its entry in the manifest, each atomically and one process after another.

    The entry's name is the graph's; it replaces one of that name. Raises ValueError where an entry breaks a rule, and
    without `replaces` where there is one of that name.
    """
    check_writable()
    described = strict_json.validate(
        {"name": graph.name, "family": family, "lineage": lineage, "split": split, "mode": mode, "source": source,
         "ops": graph.num_ops, "edges": graph.num_edges, "licence": licence, "sha256": graph.sha256, "builder": builder,
         "builder_version": builder_version},
        Entry,
    )  # fmt: skip
    (folder() / "graphs").mkdir(parents=True, exist_ok=True)
    with locked(folder() / "manifest.json.lock"):
        others = [other for other in entries() if other.name != graph.name or not replaces]
        if graph.name in (other.name for other in others):
            raise ValueError(f"{graph.name!r} is in the corpus already; choose another name")
        splits.check([*others, described])
        _write(graph, Manifest(graphs=sorted([*others, described], key=lambda entry: entry.name)))
    return described


def _write(graph: ComputationGraph, manifest: Manifest) -> None:
    """Writes both files; where the entry can't be written, a graph that has none goes."""
    goes = partial(_remove_unlisted, graph.name)
    with undone(goes), ExitStack() as failed:
        failed.callback(goes)
        store.save(graph, _path(graph.name))
        atomic.write_text(folder() / "manifest.json", json.dumps(manifest.model_dump(), indent=1) + "\n")
        failed.pop_all()


def _remove_unlisted(name: str) -> None:
    if name not in names():
        _path(name).unlink(missing_ok=True)


def _check_splits(path: Path, found: list[Entry]) -> None:
    try:
        splits.check(found)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _path(name: str) -> Path:
    return folder() / "graphs" / f"{name}.arrow"
