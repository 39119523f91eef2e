"""How documents about a graph name it and its ops: references that are checked, and maps with an entry for each op."""

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
    """Which graph a document is for."""

    name: Text | None = None
    sha256: Checksum | None = None
    ops: Amount | None = None


def graph_reference(graph: ComputationGraph) -> dict[str, Any]:
    """The reference to a graph."""
    return {"name": graph.name, "sha256": graph.sha256, "ops": graph.num_ops}


def check_graph(given: GraphReference | None, graph: ComputationGraph, what: str) -> None:
    """Raises ValueError where the reference is to another graph; `what` is the document in words."""
    if given is not None:
        check("graph.ops", given.ops, graph.num_ops, graph.name, what)
        check("graph.sha256", given.sha256, graph.sha256, graph.name, what)


def check(place: str, given: object, expected: object, name: str, what: str) -> None:
    """Raises ValueError where a value of a reference is given and not the expected one, which is that of `name`."""
    if given not in (None, expected):
        raise ValueError(
            f"{place}: {given} is not {expected}, that of {name!r}; {what} for another {place.split('.')[0]}"
        )


def check_ops(location: Sequence[str], values: Mapping[str, Any], graph: ComputationGraph, due: Sequence[str]) -> None:
    """Raises ValueError unless the ops that are due have an entry each, and nothing has but ops of the graph."""
    missing = [name for name in due if name not in values]
    if missing:
        op = strict_json.shown(missing[0])
        raise ValueError(
            f"{strict_json.place(location)}: op {op} has no entry ({len(missing)} of {len(due)} ops have none)"
        )
    if values.keys() - set(graph.op_names):
        names = set(graph.op_names)
        extra = next(name for name in values if name not in names)
        raise ValueError(
            f"{strict_json.place((*location, extra))}: "
            f"{strict_json.unknown(f'op of {graph.name!r}', extra, graph.op_names)}"
        )
