"""All interchange formats together: saves and loads documents of any of them, and writes their JSON Schemas.

`python -m gnnplace.formats.documents` writes the published schemas anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from gnnplace.cluster import Cluster
from gnnplace.formats import atomic, clusters, costs, graphs, placements, strict_json
from gnnplace.formats.strict_json import Document
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem

PathText = str | os.PathLike[str]
MAX_DOCUMENT_BYTES = 2**30
SCHEMAS = Path(__file__).parent / "json_schemas"
FORMATS: tuple[type[Document], ...] = (
    graphs.GraphDocument,
    clusters.ClusterDocument,
    placements.PlacementDocument,
    costs.CostsDocument,
)


@runtime_checkable
class Savable(Protocol):
    """An object that saves itself: a trained policy."""

    def save(self, path: PathText) -> None: ...


def save(
    what: Placement | ComputationGraph | Cluster | Savable, path: PathText, problem: Problem | None = None
) -> None:
    """Writes a document atomically, for `load` to read. A trained policy writes a checkpoint, for `load_policy`.

    A placement needs its problem, whose ops and devices it names. Its document says of which step of several
    micro-batches it is; that of a graph does not. Raises ValueError for a placement without a problem and for the graph
    of such a step, OSError if the file can't be written.

        >>> import gnnplace as gp, tempfile
        >>> problem = gp.problem("dlrm", cluster="k40-2")
        >>> placement = gp.place(problem, "gpu")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     gp.save(placement, f"{folder}/p.json", problem)
        ...     again = gp.load(f"{folder}/p.json", problem)
        >>> (again.device == placement.device).all().item()
        True
    """
    match what:
        case ComputationGraph():
            what.check_one("a graph document")
            document = graphs.graph_document(what)
        case Cluster():
            document = clusters.cluster_document(what)
        case Placement():
            if problem is None:
                raise ValueError("problem: a placement is saved with its problem, whose ops and devices it names")
            document = placements.placement_document(problem.graph, problem.cluster, what)
        case _:
            return what.save(path)
    return atomic.write_text(path, json.dumps(document) + "\n")


def load(path: PathText, problem: Problem | None = None) -> Placement | ComputationGraph | Cluster:
    """The graph, cluster or placement of a JSON document. A placement needs its problem.

    Raises ValueError (one line) for an invalid document, OSError for an unreadable file.
    """
    if problem is not None:
        return placements.read_placement(path, problem.graph, problem.cluster)

    def unplaced(document: dict[str, Any]) -> Placement:
        raise ValueError("format: a placement is loaded with its problem, whose ops and devices it names")

    readers: dict[str, Callable[[dict[str, Any]], Placement | ComputationGraph | Cluster]]
    readers = {
        "gnnplace.graph": graphs.graph_of,
        "gnnplace.cluster": clusters.cluster_of,
        "gnnplace.placement": unplaced,
    }
    return strict_json.read_any(path, readers, MAX_DOCUMENT_BYTES)


def schema(document: type[Document]) -> dict[str, Any]:
    """The JSON Schema of one format. Rules between several values (indices, cycles, names) are left to the reader."""
    described = document.model_json_schema()
    for key in ("format", "version"):
        del described["properties"][key]["default"]
    described["required"] = ["format", "version", *described.get("required", [])]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | described


def schema_files() -> dict[Path, str]:
    """The text of each published schema file."""
    names = {document: document.model_fields["format"].default.removeprefix("gnnplace.") for document in FORMATS}
    return {SCHEMAS / f"{name}.json": json.dumps(schema(document), indent=1) + "\n" for document, name in names.items()}


def main() -> None:
    """Writes the published schema files."""
    SCHEMAS.mkdir(exist_ok=True)
    for path, text in schema_files().items():
        atomic.write_text(path, text)


if __name__ == "__main__":
    main()
