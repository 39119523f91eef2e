"""The corpus: graphs in `datasets/graphs/`, listed in `datasets/manifest.json` with their names and checksums.

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
from gnnplace.isolation.under_way import locked, undone

MAX_MANIFEST_BYTES = 16 * 2**20

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
Text = Annotated[str, Field(min_length=1, max_length=1000)]


class Entry(strict_json.Document):
    """One graph of the corpus.

    `lineage` groups networks of similar construction; splits never divide a lineage. `builder` is the script that makes
    the graph, `builder_version` the package and version with which it captured the graph: another version may capture
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
    """The folder `datasets`."""
    named = os.environ.get("GNNPLACE_DATASETS")
    return Path(named) if named else package_data.folder("datasets")


def installed() -> bool:
    """Whether the corpus belongs to an installed package, which nobody changes and which lacks the building scripts."""
    return folder() == package_data.INSTALLED / "datasets"


def check_writable() -> None:
    """Raises ValueError if the corpus belongs to an installed package, to which nothing is added."""
    if installed():
        copy = f"cp -r {folder()} my-datasets; export GNNPLACE_DATASETS=my-datasets"
        raise ValueError(f"{folder()}: the corpus of an installed package is not changed; add to a copy of it: {copy}")


def entries() -> tuple[Entry, ...]:
    """Every graph of the corpus, by name.

    Raises ValueError for an invalid manifest; without a manifest the corpus is empty.
    """
    path = folder() / "manifest.json"
    if not path.exists():
        return ()
    graphs = strict_json.read(path, Manifest, lambda manifest: manifest.graphs, MAX_MANIFEST_BYTES)
    names = [entry.name for entry in graphs]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"{path}: graphs[{index}].name: {name!r} is not unique")
    try:
        splits.check(graphs)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return tuple(sorted(graphs, key=lambda entry: entry.name))


def names() -> tuple[str, ...]:
    """The names of the graphs, sorted."""
    return tuple(entry.name for entry in entries())


def entry(name: str) -> Entry:
    """The entry of a graph. Raises ValueError for an unknown name."""
    for candidate in entries():
        if candidate.name == name:
            return candidate
    raise ValueError(strict_json.unknown(f"graph of the corpus in {folder()}", name, names()))


def graph(name: str) -> ComputationGraph:
    """The graph called `name`. Raises ValueError if it is unknown, damaged or differs from the manifest's checksum."""
    described = entry(name)
    path = _path(name)
    stored = store.load(path)
    if stored.sha256 != described.sha256:
        rebuild = f"rebuild it with {described.builder} ({described.builder_version})"
        raise ValueError(f"{path}: sha256 {stored.sha256} is not the manifest's {described.sha256}; {rebuild}")
    return stored


def add(
    graph: ComputationGraph, *, family: str, lineage: str, split: str, mode: str, source: str, licence: str,
    builder: str,
    builder_version: str, replaces: bool = True,
) -> Entry:  # fmt: skip
    """Writes the graph's file, then its entry in the manifest, each atomically; processes take turns.

    The entry has the graph's name and replaces one of that name. Raises ValueError if an entry breaks a rule and,
    without `replaces`, if there is one of that name.
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
    """Writes both files. If the manifest can't be written, the file of a graph without an entry is removed."""
    remove = partial(_remove_unlisted, graph.name)
    with undone(remove), ExitStack() as on_failure:
        on_failure.callback(remove)
        store.save(graph, _path(graph.name))
        atomic.write_text(folder() / "manifest.json", json.dumps(manifest.model_dump(), indent=1) + "\n")
        on_failure.pop_all()


def _remove_unlisted(name: str) -> None:
    if name not in names():
        _path(name).unlink(missing_ok=True)


def _path(name: str) -> Path:
    return folder() / "graphs" / f"{name}.arrow"
