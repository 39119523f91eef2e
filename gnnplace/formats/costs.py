"""Measured costs as JSON documents: `gnnplace.costs` version 1.

A document holds the time of each op, by name, on each device kind, and transfers of several sizes on each link.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Int64
from pydantic import Field, Strict

from gnnplace.cluster import MAX_BYTES, MAX_DEVICES, MAX_TIME_NS
from gnnplace.costs.measured import NOT_MEASURED, CostProvenance, LinkSample, MeasuredCosts
from gnnplace.formats import atomic, references, strict_json
from gnnplace.formats.references import GraphReference, Text
from gnnplace.formats.strict_json import Document, Source
from gnnplace.graph import ComputationGraph
from gnnplace.problems import allowed_on

MAX_DOCUMENT_BYTES = 2**30
MAX_SAMPLES = 1_000_000

Key = Annotated[str, Field(min_length=1, max_length=1000)]
TimeNs = Annotated[int, Field(ge=0, le=MAX_TIME_NS)]
Bytes = Annotated[int, Field(ge=0, le=MAX_BYTES)]
Sample = Annotated[tuple[Bytes, TimeNs, TimeNs], Strict(False)]


class LinkSamplesDocument(Document):
    """Transfers from one device (its name or kind) to another.

    A sample is `[bytes, ns on the sender's channel, ns from its start to its arrival]`.
    """

    src: Key
    dst: Key
    samples: Annotated[list[Sample], Field(min_length=1, max_length=MAX_SAMPLES)]


class CostProvenanceDocument(Document):
    """The origin of the costs: the tool, the hardware, the date and the number of measured steps."""

    tool: Text
    hardware: Text
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}")]
    steps: Annotated[int, Field(ge=1, le=2**31 - 1)]


class CostsDocument(Document):
    """A document of measured costs.

    `time_ns` maps a device kind, or the name of a device, to the nanoseconds of each op; the name takes precedence.
    """

    format: Literal["gnnplace.costs"] = "gnnplace.costs"
    version: Literal[1] = 1
    graph: GraphReference | None = None
    time_ns: Annotated[dict[Key, dict[Text, TimeNs]], Field(min_length=1, max_length=MAX_DEVICES)]
    links: Annotated[list[LinkSamplesDocument], Field(max_length=MAX_DEVICES**2)] = Field(default_factory=list)
    provenance: CostProvenanceDocument | None = None


def read_costs(source: Source, graph: ComputationGraph) -> MeasuredCosts:
    """The costs of a JSON file (a path) or of its bytes, for this graph.

    Raises ValueError (one line) if the document is invalid, is for another graph, or has times for a device kind but
    lacks that of an op that may be placed there; OSError for an unreadable file.
    """
    return strict_json.read(source, CostsDocument, lambda document: _costs(document, graph), MAX_DOCUMENT_BYTES)


def write_costs(path: str | os.PathLike[str], costs: MeasuredCosts) -> None:
    """Writes the document of costs atomically. Raises OSError if the file can't be written."""
    atomic.write_text(path, json.dumps(costs_document(costs)) + "\n")


def costs_document(costs: MeasuredCosts) -> dict[str, Any]:
    """The document of costs; reading it gives the same costs."""
    reference = {"name": costs.graph_name, "sha256": costs.graph_sha256, "ops": len(costs.op_names)}
    links = [
        {"src": src, "dst": dst, "samples": [list(sample) for sample in samples]}
        for (src, dst), samples in costs.links.items()
    ]
    document = {"format": "gnnplace.costs", "version": 1, "graph": reference, "links": links}
    document["time_ns"] = {key: _named(costs.op_names, times) for key, times in costs.time_ns.items()}
    return document if costs.provenance is None else document | {"provenance": vars(costs.provenance)}


def _named(op_names: tuple[str, ...], times: Int64[np.ndarray, " ops"]) -> dict[str, int]:
    return {name: time for name, time in zip(op_names, times.tolist(), strict=True) if time != NOT_MEASURED}


def _costs(document: CostsDocument, graph: ComputationGraph) -> MeasuredCosts:
    references.check_graph(document.graph, graph, "the costs are")
    return MeasuredCosts(
        graph.name,
        graph.sha256,
        graph.op_names,
        {key: _times(key, times, graph) for key, times in document.time_ns.items()},
        _links(document),
        None if document.provenance is None else CostProvenance(**document.provenance.model_dump()),
    )


def _times(key: str, times: Mapping[str, int], graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    """The times of one device kind, a value for each op of the graph."""
    allowed = allowed_on(graph, key)  # ops that only other device kinds may run have no time here
    required = graph.op_names if allowed.all() else [graph.op_names[op] for op in np.flatnonzero(allowed)]
    references.check_ops(("time_ns", key), times, graph, required)
    return np.array([times.get(name, NOT_MEASURED) for name in graph.op_names], dtype=np.int64)


def _links(document: CostsDocument) -> dict[tuple[str, str], tuple[LinkSample, ...]]:
    links: dict[tuple[str, str], tuple[LinkSample, ...]] = {}
    for index, link in enumerate(document.links):
        if (link.src, link.dst) in links:
            raise ValueError(
                f"links[{index}]: a second entry from {link.src!r} to {link.dst!r}; at most one for an ordered pair"
            )
        links[link.src, link.dst] = tuple(LinkSample(*sample) for sample in link.samples)
    return links
