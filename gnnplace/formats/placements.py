"""Placements as JSON documents: `gnnplace.placement` version 1
(docs/formats.md#placement), by name of op and device.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Int32, Int64
from pydantic import Field

from gnnplace.cluster import Cluster
from gnnplace.formats import atomic, references, strict_json
from gnnplace.formats.references import Amount, Checksum, GraphReference, Text
from gnnplace.formats.strict_json import Document, Source
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement, Schedule
from gnnplace.result import StepResult, metrics
from gnnplace.units.granularity import Granularity, devices_of_modules, granularity_of
from gnnplace.units.modules import modules

MAX_DOCUMENT_BYTES = 2**30

Share = Annotated[float, Field(le=1)]
Priority = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]


class ClusterReference(Document):
    """Which cluster a placement is for."""

    name: Text | None = None
    sha256: Checksum | None = None


class Predicted(Document):
    """What a simulation said of the placement. `bound_ns` is a lower bound for this graph and cluster, `bound` its
    name.

    `room` to `idle_ns` are the metrics of `gnnplace.result`.
    """

    step_time_ns: Amount | None
    infeasible: Text | None
    peak_memory_bytes: dict[Text, Amount] | None
    busy_ns: dict[Text, Amount]
    transferred_bytes: Amount
    transfers: Amount
    bound_ns: Amount
    bound: Text | None = None
    room: Share | None = None
    load_balance: Share | None = None
    communication_share: Share | None = None
    idle_ns: dict[Text, Amount] | None = None


class Provenance(Document):
    """Who made the placement, with what, and how long that took."""

    tool: Text
    planner: Text
    encoder: Text | None = None
    checkpoint_sha256: Checksum | None = None
    seed: int
    wall_ns: Amount


class PlacementDocument(Document):
    """A placement document. `granularity` to `provenance` are for the reader; a command computes them anew."""

    format: Literal["gnnplace.placement"] = "gnnplace.placement"
    version: Literal[1] = 1
    graph: GraphReference | None = None
    cluster: ClusterReference | None = None
    device: dict[Text, Text]
    schedule: Schedule = "critical-path"
    priority: dict[Text, Priority] | None = None
    fusion: list[Annotated[list[Text], Field(min_length=2)]] | None = None
    granularity: Granularity | None = None
    modules: dict[Text, Text] | None = None
    predicted: Predicted | None = None
    provenance: Provenance | None = None


class About(NamedTuple):
    """What a document says of its placement, None where it does not."""

    predicted: Predicted | None
    provenance: Provenance | None


def read_placement(source: Source, graph: ComputationGraph, cluster: Cluster) -> Placement:
    """The placement of a JSON file (a path) or of its bytes, for this graph and cluster.

    Raises ValueError (one line) where the document is bad, is for another graph or cluster, or doesn't name
    each op and only devices that there are; OSError where the file is unreadable.
    """
    return strict_json.read(
        source, PlacementDocument, lambda document: _placement(document, graph, cluster), MAX_DOCUMENT_BYTES
    )


def read_about(source: Source) -> About:
    """What the document of a placement says of it. Raises ValueError and OSError as `read_placement` does."""
    return strict_json.read(
        source, PlacementDocument, lambda found: About(found.predicted, found.provenance), MAX_DOCUMENT_BYTES
    )


def write_placement(
    path: str | os.PathLike[str],
    graph: ComputationGraph,
    cluster: Cluster,
    placement: Placement,
    predicted: Predicted,
    provenance: Provenance,
) -> None:
    """Writes the document of a placement, atomically. Raises OSError where the file can't be written."""
    atomic.write_text(path, json.dumps(described_placement(graph, cluster, placement, predicted, provenance)) + "\n")


def described_placement(
    graph: ComputationGraph, cluster: Cluster, placement: Placement, predicted: Predicted, provenance: Provenance
) -> dict[str, Any]:
    """The document of a placement with what its step is predicted to take, and who made it."""
    more = {"predicted": predicted.model_dump(exclude_unset=True), "provenance": provenance.model_dump()}
    return placement_document(graph, cluster, placement) | more


def placement_document(graph: ComputationGraph, cluster: Cluster, placement: Placement) -> dict[str, Any]:
    """The document of a placement, without what was predicted; reading it gives the same placement."""
    devices = [cluster.device_names[device] for device in placement.device.tolist()]
    priority = (
        None if placement.priority is None else dict(zip(graph.op_names, placement.priority.tolist(), strict=True))
    )
    fusion = {} if placement.fusion is None else {"fusion": _fused_names(graph, placement.fusion)}
    return {
        "format": "gnnplace.placement",
        "version": 1,
        "graph": references.graph_reference(graph),
        "cluster": {"name": cluster.name, "sha256": cluster.sha256},
        "device": dict(zip(graph.op_names, devices, strict=True)),
        "schedule": placement.schedule,
        "priority": priority,
        **fusion,
        "granularity": granularity_of(graph, placement.device),
        "modules": whole_modules(graph, cluster, placement),
    }


def whole_modules(graph: ComputationGraph, cluster: Cluster, placement: Placement) -> dict[str, str]:
    """The device of each module that is on one, by name, in the order in which modules begin."""
    devices = devices_of_modules(graph, placement.device).tolist()
    return {
        name: cluster.device_names[device]
        for name, device in zip(modules(graph).names, devices, strict=True)
        if device != NONE
    }


def predicted(cluster: Cluster, result: StepResult, bound_ns: int, bound: str | None = None) -> Predicted:
    """What a document says of a simulated step."""

    def by_device(values: Int64[np.ndarray, " devices"]) -> dict[str, int]:
        return dict(zip(cluster.device_names, values.tolist(), strict=True))

    measures = metrics(cluster, result, bound_ns)
    return Predicted(
        step_time_ns=result.step_time_ns,
        infeasible=result.infeasible,
        peak_memory_bytes=None if result.peak_memory_bytes is None else by_device(result.peak_memory_bytes),
        busy_ns=by_device(result.busy_ns),
        transferred_bytes=result.transferred_bytes,
        transfers=result.transfers,
        bound_ns=bound_ns,
        bound=bound,
        room=measures.room,
        load_balance=measures.load_balance,
        communication_share=measures.communication_share,
        idle_ns=None if measures.idle_ns is None else by_device(measures.idle_ns),
    )


def _placement(document: PlacementDocument, graph: ComputationGraph, cluster: Cluster) -> Placement:
    _check_references(document, graph, cluster)
    numbers = {name: index for index, name in enumerate(cluster.device_names)}
    for op, name in document.device.items():
        if name not in numbers:
            raise ValueError(
                f"{strict_json.place(('device', op))}: {strict_json.unknown('device', name, cluster.device_names)}"
            )
    device = np.array([numbers[name] for name in _by_op("device", document.device, graph)], dtype=np.int32)
    priority = (
        None if document.priority is None else np.array(_by_op("priority", document.priority, graph), dtype=np.int64)
    )
    return Placement(
        device, document.schedule, priority, None if document.fusion is None else _fusion(document.fusion, graph)
    )


def _fused_names(graph: ComputationGraph, fusion: Int32[np.ndarray, " ops"]) -> list[list[str]]:
    """The names of the ops of each group of several, in the order of the graph."""
    groups: dict[int, list[str]] = {}
    for name, label in zip(graph.op_names, fusion.tolist(), strict=True):
        groups.setdefault(label, []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def _fusion(groups: list[list[str]], graph: ComputationGraph) -> Int32[np.ndarray, " ops"]:
    """The label of each op. Raises ValueError for an op that the graph lacks, and for one in two groups."""
    number = {name: op for op, name in enumerate(graph.op_names)}
    fusion, leader = np.arange(graph.num_ops, dtype=np.int32), dict[str, str]()
    for group, names in enumerate(groups):
        for place, name in enumerate(names):
            where = strict_json.place(("fusion", group, place))
            if name not in number:
                raise ValueError(f"{where}: {strict_json.unknown(f'op of {graph.name!r}', name, graph.op_names)}")
            if name in leader:
                raise ValueError(
                    f"{where}: {strict_json.shown(name)} is fused with {strict_json.shown(leader[name])} already"
                )
            leader[name] = names[0]
            fusion[number[name]] = number[names[0]]
    return fusion


def _check_references(document: PlacementDocument, graph: ComputationGraph, cluster: Cluster) -> None:
    what = "the placement is"
    references.check_graph(document.graph, graph, what)
    if document.cluster is not None:
        references.check("cluster.sha256", document.cluster.sha256, cluster.sha256, cluster.name, what)


def _by_op(key: str, values: Mapping[str, Any], graph: ComputationGraph) -> list[Any]:
    """The values in the order of the ops."""
    references.check_ops((key,), values, graph, graph.op_names)
    return [values[name] for name in graph.op_names]
