"""References in documents about a graph: to the graph itself, and maps with an entry for each of its ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from gnnplace.formats import strict_json
from gnnplace.formats.strict_json import Document
from gnnplace.graph import ComputationGraph

MAX_OF_A_SUM = 2**63 - 1

Text = Annotated[str, Field(max_length=10_000)]
Checksum = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Amount = Annotated[int, Field(ge=0, le=MAX_OF_A_SUM)]


class GraphReference(Document):
    """The graph that a document is for."""

    name: Text | None = None
    sha256: Checksum | None = None
    ops: Amount | None = None


def graph_reference(graph: ComputationGraph) -> dict[str, Any]:
    """The reference to a graph, as a document holds it."""
    return {"name": graph.name, "sha256": graph.sha256, "ops": graph.num_ops}


def check_graph(reference: GraphReference | None, graph: ComputationGraph, what: str) -> None:
    """Raises ValueError if the reference is to another graph; `what` is the document in words ("the costs are")."""
    if reference is not None:
        check("graph.ops", reference.ops, graph.num_ops, graph.name, what)
        check("graph.sha256", reference.sha256, graph.sha256, graph.name, what)


def check(place: str, value: object, expected: object, name: str, what: str) -> None:
    """Raises ValueError if a value of a reference is present and differs from that of `name`, which is expected."""
    if value not in (None, expected):
        raise ValueError(
            f"{place}: {value} is not {expected}, that of {name!r}; {what} for another {place.split('.')[0]}"
        )


def check_ops(
    location: Sequence[str], values: Mapping[str, Any], graph: ComputationGraph, required: Sequence[str]
) -> None:
    """Raises ValueError if a required op has no entry, or if an entry is not for an op of the graph."""
    missing = [name for name in required if name not in values]
    if missing:
        op = strict_json.shown(missing[0])
        raise ValueError(
            f"{strict_json.place(location)}: op {op} has no entry ({len(missing)} of {len(required)} ops have none)"
        )
    if values.keys() - set(graph.op_names):
        names = set(graph.op_names)
        extra = next(name for name in values if name not in names)
        raise ValueError(
            f"{strict_json.place((*location, extra))}: "
            f"{strict_json.unknown(f'op of {graph.name!r}', extra, graph.op_names)}"
        )
