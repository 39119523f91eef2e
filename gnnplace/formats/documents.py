"""Saving and loading by what a thing is: graphs, clusters and placements
as JSON documents; what was trained saves itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from gnnplace.cluster import Cluster
from gnnplace.formats import atomic, clusters, graphs, placements, strict_json
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem

PathText = str | os.PathLike[str]
MAX_DOCUMENT_BYTES = 2**30


@runtime_checkable
class Savable(Protocol):
    """What writes itself: a policy that was trained."""

    def save(self, path: PathText) -> None: ...


def save(
    what: Placement | ComputationGraph | Cluster | Savable, path: PathText, problem: Problem | None = None
) -> None:
    """Writes a document that `load` reads, atomically; of what was trained, a checkpoint that `load_policy` reads.

    A placement needs its problem, whose ops and devices it names. Raises ValueError without it, OSError where the file
    can't be written.

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

    Raises ValueError (one line) for a bad document, OSError where the file is unreadable.
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
