"""Placements as JSON documents: `gnnplace.placement` version 1 (docs/formats.md#placement).

Ops and devices stand there by name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Int32, Int64
from pydantic import Field

from gnnplace.caveats import caveats
from gnnplace.choices import CopiesName, RuntimeName
from gnnplace.cluster import Cluster
from gnnplace.formats import atomic, references, strict_json
from gnnplace.formats.references import Amount, Checksum, GraphReference, Text
from gnnplace.formats.strict_json import Document, Source
from gnnplace.graph import MAX_OPS, NONE, ComputationGraph
from gnnplace.placement import Placement, Schedule
from gnnplace.result import StepResult, metrics, micro_batch_ns
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.units.granularity import Granularity, devices_of_modules, granularity_of
from gnnplace.units.modules import modules

MAX_DOCUMENT_BYTES = 2**30

Share = Annotated[float, Field(le=1)]
MicroBatches = Annotated[int, Field(ge=1, le=MAX_OPS)]
NoneOrMore = Annotated[int, Field(ge=0, le=MAX_OPS)]
Priority = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]


class ClusterReference(Document):
    """The cluster that a placement is for."""

    name: Text | None = None
    sha256: Checksum | None = None


class Predicted(Document):
    """The simulated step of the placement.

    `bound_ns` is a lower bound for this graph and cluster, `bound` its name. `room` to `idle_ns` are the metrics of
    `gnnplace.result`. A step of several micro-batches has their number, and the time of the step for each.
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
    micro_batches: Amount | None = None
    micro_batch_time_ns: Amount | None = None


class Provenance(Document):
    """The origin of the placement: tool, planner, encoder, checkpoint and seed, and the planning time."""

    tool: Text
    planner: Text
    encoder: Text | None = None
    checkpoint_sha256: Checksum | None = None
    seed: int
    wall_ns: Amount


class AlternativeStep(Document):
    """What a rule, or the plan itself, makes of the step: its form, time, memory and use of devices.

    `micro_batches_on` is the number of micro-batches that each device works on, 0 for none. `plan` marks the placement
    of the document.
    """

    planner: Text
    plan: bool = False
    micro_batches: MicroBatches
    copies: CopiesName = "together"
    replicas: MicroBatches = 1
    micro_batches_on: dict[Text, Amount]
    step_time_ns: Amount | None
    micro_batch_time_ns: Amount | None
    infeasible: Text | None
    peak_memory_bytes: dict[Text, Amount] | None
    busy_ns: dict[Text, Amount]
    transferred_bytes: Amount


class Alternatives(Document):
    """What people would do for the step, fastest for a micro-batch first, and what follows from it in one line.

    `without_cpus_ns` is a lower bound on the plan's step, in every form, if accelerators work alone.
    """

    steps: list[AlternativeStep]
    advice: Text
    without_cpus_ns: Amount | None = None


class PlacementDocument(Document):
    """A placement document. `granularity` to `provenance` inform the reader; commands compute them anew.

    The graph is that of one micro-batch; `micro_batches` to `ring_size` say which step of it was placed.
    """

    format: Literal["gnnplace.placement"] = "gnnplace.placement"
    version: Literal[1] = 1
    graph: GraphReference | None = None
    cluster: ClusterReference | None = None
    micro_batches: MicroBatches = 1
    copies: CopiesName = "together"
    shared: list[Text] = Field(default_factory=list)
    replicas: MicroBatches = 1
    shares: list[MicroBatches] = Field(default_factory=list)
    one_home: list[Text] = Field(default_factory=list)
    family_shares: dict[Text, list[NoneOrMore]] = Field(default_factory=dict)
    ring_size: NoneOrMore = 0
    runtime: RuntimeName | None = None
    device: dict[Text, Text]
    schedule: Schedule = "critical-path"
    priority: dict[Text, Priority] | None = None
    fusion: list[Annotated[list[Text], Field(min_length=2)]] | None = None
    granularity: Granularity | None = None
    modules: dict[Text, Text | list[Text]] | None = None
    warnings: list[Text] | None = None
    predicted: Predicted | None = None
    alternatives: Alternatives | None = None
    provenance: Provenance | None = None


class About(NamedTuple):
    """The step that a placement's document is of; its prediction, provenance, alternatives and runtime, or None."""

    predicted: Predicted | None
    provenance: Provenance | None
    parallelism: Parallelism
    alternatives: Alternatives | None
    runtime: RuntimeName | None


def read_placement(source: Source, graph: ComputationGraph, cluster: Cluster) -> Placement:
    """The placement of a JSON file (a path) or of its bytes, for this graph and cluster.

    Raises ValueError (one line) if the document is invalid, is for another graph or cluster, lacks an op or names an
    unknown device; OSError for an unreadable file.
    """
    return strict_json.read(
        source, PlacementDocument, lambda document: _placement(document, graph, cluster), MAX_DOCUMENT_BYTES
    )


def read_about(source: Source) -> About:
    """What a placement's document says without its graph. Raises ValueError and OSError as `read_placement` does."""
    return strict_json.read(
        source,
        PlacementDocument,
        lambda document: About(
            document.predicted,
            document.provenance,
            _parallelism(document),
            document.alternatives,
            document.runtime,
        ),
        MAX_DOCUMENT_BYTES,
    )


def write_placement(
    path: str | os.PathLike[str],
    graph: ComputationGraph,
    cluster: Cluster,
    placement: Placement,
    predicted: Predicted,
    provenance: Provenance,
    alternatives: Alternatives | None = None,
) -> None:
    """Writes the document of a placement atomically. Raises OSError if the file can't be written."""
    document = described_placement(graph, cluster, placement, predicted, provenance, alternatives)
    atomic.write_text(path, json.dumps(document) + "\n")


def described_placement(
    graph: ComputationGraph,
    cluster: Cluster,
    placement: Placement,
    predicted: Predicted,
    provenance: Provenance,
    alternatives: Alternatives | None = None,
) -> dict[str, Any]:
    """The document of a placement with its prediction, what people would do instead, if known, and its provenance."""
    rivals = {} if alternatives is None else {"alternatives": alternatives.model_dump()}
    about = {"predicted": predicted.model_dump(exclude_unset=True), **rivals, "provenance": provenance.model_dump()}
    return placement_document(graph, cluster, placement) | about


def placement_document(graph: ComputationGraph, cluster: Cluster, placement: Placement) -> dict[str, Any]:
    """The document of a placement without prediction and provenance; reading it gives the same placement."""
    devices = [cluster.device_names[device] for device in placement.device.tolist()]
    priority = (
        None if placement.priority is None else dict(zip(graph.op_names, placement.priority.tolist(), strict=True))
    )
    fusion = {} if placement.fusion is None else {"fusion": _fused_names(graph, placement.fusion)}
    return {
        "format": "gnnplace.placement",
        "version": 1,
        "graph": references.graph_reference(graph.plain),
        "cluster": {"name": cluster.name, "sha256": cluster.sha256},
        **Parallelism.in_graph(graph).knobs(),
        **({} if graph.runtime is None else {"runtime": graph.runtime}),
        "device": dict(zip(graph.op_names, devices, strict=True)),
        "schedule": placement.schedule,
        "priority": priority,
        **fusion,
        "granularity": granularity_of(graph, placement.device),
        "modules": whole_modules(graph, cluster, placement),
        "warnings": caveats(graph),
    }


def whole_modules(graph: ComputationGraph, cluster: Cluster, placement: Placement) -> dict[str, str | list[str]]:
    """The device of each module that is on a single one, by name, in the order in which modules begin.

    A module of several replicas has a list of devices, one for each replica, if each is on a single one.
    """
    replicas = 1 if graph.copies is None else graph.copies.replicas
    rows = devices_of_modules(graph, placement.device).reshape(replicas, -1).T.tolist()
    whole = {
        name: [cluster.device_names[device] for device in row]
        for name, row in zip(modules(graph.original).names, rows, strict=True)
        if NONE not in row
    }
    return {name: devices if replicas > 1 else devices[0] for name, devices in whole.items()}


def predicted(
    cluster: Cluster, result: StepResult, bound_ns: int, bound: str | None = None, micro_batches: int = 1
) -> Predicted:
    """The prediction in a document: the result of a simulated step of so many micro-batches."""

    def by_device(values: Int64[np.ndarray, " devices"]) -> dict[str, int]:
        return dict(zip(cluster.device_names, values.tolist(), strict=True))

    measures = metrics(cluster, result, bound_ns)
    each: dict[str, int | None] = {}
    if micro_batches > 1:
        each_ns = micro_batch_ns(result.step_time_ns, micro_batches)
        each = {"micro_batches": micro_batches, "micro_batch_time_ns": each_ns}
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
        **each,
    )


def _placement(document: PlacementDocument, graph: ComputationGraph, cluster: Cluster) -> Placement:
    _check_references(document, graph, cluster)
    index_of = {name: index for index, name in enumerate(cluster.device_names)}
    for op, name in document.device.items():
        if name not in index_of:
            raise ValueError(
                f"{strict_json.place(('device', op))}: {strict_json.unknown('device', name, cluster.device_names)}"
            )
    device = np.array([index_of[name] for name in _by_op("device", document.device, graph)], dtype=np.int32)
    priority = (
        None if document.priority is None else np.array(_by_op("priority", document.priority, graph), dtype=np.int64)
    )
    fusion = None if document.fusion is None else _fusion(document.fusion, graph)
    return Placement(device, document.schedule, priority, fusion)


def _parallelism(document: PlacementDocument) -> Parallelism:
    return Parallelism(
        document.micro_batches, document.copies, tuple(document.shared), document.replicas, tuple(document.shares),
        tuple(document.one_home), tuple((name, tuple(each)) for name, each in document.family_shares.items()),
        document.ring_size,
    )  # fmt: skip


def _fused_names(graph: ComputationGraph, fusion: Int32[np.ndarray, " ops"]) -> list[list[str]]:
    """The names of the ops of each group of several, in the order of the graph."""
    groups: dict[int, list[str]] = {}
    for name, label in zip(graph.op_names, fusion.tolist(), strict=True):
        groups.setdefault(label, []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def _fusion(groups: list[list[str]], graph: ComputationGraph) -> Int32[np.ndarray, " ops"]:
    """The group of each op, labelled by its first op. Raises ValueError for an unknown op or one in two groups."""
    op_of = {name: op for op, name in enumerate(graph.op_names)}
    fusion, leader = np.arange(graph.num_ops, dtype=np.int32), dict[str, str]()
    for group, names in enumerate(groups):
        for index, name in enumerate(names):
            place = strict_json.place(("fusion", group, index))
            if name not in op_of:
                raise ValueError(f"{place}: {strict_json.unknown(f'op of {graph.name!r}', name, graph.op_names)}")
            if name in leader:
                raise ValueError(
                    f"{place}: {strict_json.shown(name)} is fused with {strict_json.shown(leader[name])} already"
                )
            leader[name] = names[0]
            fusion[op_of[name]] = op_of[names[0]]
    return fusion


def _check_references(document: PlacementDocument, graph: ComputationGraph, cluster: Cluster) -> None:
    what = "the placement is"
    references.check_graph(document.graph, graph.plain, what)
    if (difference := _parallelism(document).difference(Parallelism.in_graph(graph))) is not None:
        raise ValueError(f"{difference}, that of the step of {graph.name!r}; {what} for another step")
    if document.cluster is not None:
        references.check("cluster.sha256", document.cluster.sha256, cluster.sha256, cluster.name, what)


def _by_op(key: str, values: Mapping[str, Any], graph: ComputationGraph) -> list[Any]:
    """The values of a map from op to value, in the order of the ops. Raises ValueError if an op has none."""
    references.check_ops((key,), values, graph, graph.op_names)
    return [values[name] for name in graph.op_names]
