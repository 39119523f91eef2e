"""The worked examples of docs/execution-model.md: their shorthand to documents, and what they expect to figures of both simulators.

`docs/execution-model.md#how-to-read-the-examples` explains the shorthand.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml
from support import plain_fusion
from support.plain_parallelism import plain_step
from support.plain_simulator import PlainSimulator
from support.step_differences import step_differences

from gnnplace.bounds.bounds import bounds
from gnnplace.bounds.forms import bounds_of_forms
from gnnplace.costs import measured, roofline
from gnnplace.formats.clusters import cluster_of
from gnnplace.formats.costs import read_costs
from gnnplace.formats.graphs import graph_document, graph_of
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement, missing_link
from gnnplace.problems import Problem
from gnnplace.schedules.priorities import priorities
from gnnplace.simulator.simulator import simulate
from gnnplace.transformations.parallelism import Parallelism

DEVICE = {"kind": "gpu", "memory_bytes": 10**6, "flops_per_s": 10**9, "memory_bytes_per_s": 10**9}
LINK = {"bandwidth_bytes_per_s": 10**9}
OP = {"kind": "Op", "time_ns": 1}


@dataclass(frozen=True)
class Example:
    """One example under one schedule, as documents of the formats page, and the number of ops that it writes down."""

    written: int
    graph: dict[str, Any]
    cluster: dict[str, Any]
    device: list[int]
    schedule: str
    priority: list[int] | None
    costs: dict[str, dict[str, int]] | None
    fusion: list[int] | None
    expected: dict[str, Any]
    step: ComputationGraph | None = None  # of several micro-batches, as it was built: the document does not know its copies

    def problem(self) -> Problem:
        """The problem under the measured costs, if there are any, else under roofline costs."""
        graph, cluster = graph_of(self.graph), cluster_of(self.cluster)
        if self.costs is None:
            return roofline.problem(graph, cluster)
        document = {"format": "gnnplace.costs", "version": 1, "time_ns": self.costs}
        return measured.problem(graph, cluster, read_costs(json.dumps(document).encode(), graph))

    @property
    def ops(self) -> list[str]:
        return [op["name"] for op in self.graph["ops"]]

    @property
    def devices(self) -> list[str]:
        return [device["name"] for device in self.cluster["devices"]]


def examples(text: str) -> list[Example]:
    """The examples of a block: one, or one for each schedule that is expected."""
    block = yaml.safe_load(text)
    ops, devices, links = block.pop("ops"), block.pop("devices", {}), block.pop("links", [])
    number, copies, homes = block.pop("micro_batches", 1), block.pop("copies", "together"), block.pop("devices_of_replicas", [])
    moved, shares, one_home = block.pop("devices_of_copies", {}), tuple(block.pop("shares", ())), tuple(block.pop("one_home", ()))
    families = tuple((layer, tuple(each)) for layer, each in block.pop("family_shares", {}).items())
    ring_size = block.pop("ring_size", 0)
    places = [op.pop("device") for op in ops.values()]
    ends = [link[end] for link in links for end in ("src", "dst")]
    names = sorted({*devices, *places, *ends, *homes, *moved.values()})
    priority = [op.pop("priority", None) for op in ops.values()]
    given = None if None in priority else priority
    schedule = block.pop("schedule", "fifo" if given is None else "given")
    costs = block.pop("costs", None)
    fused = {op: group[0] for group in block.pop("fusion", []) for op in group}
    fusion = [list(ops).index(fused.get(op, op)) for op in ops] if fused else None
    expected = block.pop("expected_under", None) or {schedule: block.pop("expected")}
    assert not block, f"unknown keys {list(block)}"
    written, graph, step = len(ops), document_of(ops), None
    cluster = {
        "format": "gnnplace.cluster",
        "version": 1,
        "name": "example",
        "devices": [{"name": name} | DEVICE | devices.get(name, {}) for name in names],
        "links": [LINK | link for link in links],
        "isolated": True,  # where the example needs no link
    }
    device = [names.index(place) for place in places]
    if number > 1 or shares:
        form = Parallelism(sum(shares) or number, copies, (), len(homes) or 1, shares, one_home, families, ring_size)
        step = _step(graph_of(graph), form)
        device = _places(step, device, [names.index(home) for home in homes])
        device = [names.index(moved.get(name, names[place])) for name, place in zip(step.op_names, device, strict=True)]
        graph = graph_document(step)
    return [Example(written, graph, cluster, device, rule, given, costs, fusion, figures, step) for rule, figures in expected.items()]


def _step(graph: ComputationGraph, form: Parallelism) -> ComputationGraph:
    """The step of several micro-batches, of which both implementations say the same."""
    step = form.of(graph)
    assert not step_differences(step, plain_step(graph, form))
    return step


def _places(step: ComputationGraph, device: list[int], homes: list[int]) -> list[int]:
    """The devices of the ops of a step: that of the replica, or a copy stands with its op, an added op with its first reader."""
    assert step.copies is not None
    if homes:
        return [homes[replica] for replica in step.copies.replica]
    places = [device[source] for source in step.copies.source]
    for op in reversed(np.flatnonzero(step.copies.added).tolist()):
        readers = step.edge_dst[step.out_ptr[op] : step.out_ptr[op + 1]]
        places[op] = places[readers[0]] if len(readers) else places[op]
    return places


def document_of(ops: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The document of a graph of ops by name, each with what it `reads` and what it comes `after`."""
    names, documents, edges = list(ops), [], []

    def output(text: str) -> list[int]:
        name, _, k = text.partition(".")
        return [names.index(name), int(k or 0)]

    for number, (name, op) in enumerate(ops.items()):
        edges += [[*output(source), number] for source in op.pop("reads", [])]
        edges += [[names.index(source), -1, number] for source in op.pop("after", [])]
        outputs = [made if isinstance(made, dict) else {"bytes": made} for made in op.pop("outputs", [])]
        for made in outputs:
            if "alias_of" in made:
                made["alias_of"] = output(made["alias_of"])
        costed = {"flops", "bytes_accessed", "kernel"} & op.keys()
        fields = {"kind": "Op"} if costed else OP
        document = {"name": name, "outputs": outputs} | fields | op
        if isinstance(document.get("time_ns"), int):
            document["time_ns"] = {"gpu": document["time_ns"]}
        documents.append(document)
    return {"format": "gnnplace.graph", "version": 1, "name": "example", "ops": documents, "edges": edges}


def computed(example: Example) -> dict[str, Any]:
    """What the project's simulator, costs, schedules and bounds say, by the names that examples use."""
    problem = example.problem()
    device = np.array(example.device, np.int32)
    priority = None if example.priority is None else np.array(example.priority, np.int64)
    placement = Placement(device, example.schedule, priority, None if example.fusion is None else np.array(example.fusion, np.int32))
    (result,) = simulate(problem, [placement], timeline=True)
    found = {
        "ops": example.ops,
        "time_ns": _table(example, problem.time_ns.tolist()),
        "contended_ns": _table(example, problem.slowest_ns.tolist()),
        "step_time_ns": result.step_time_ns,
        "infeasible": result.infeasible,
        "busy_ns": dict(zip(example.devices, result.busy_ns.tolist(), strict=True)),
        "transfers": result.transfers,
        "transferred_bytes": result.transferred_bytes,
        "bounds_ns": dict(bounds(problem, example.fusion is not None)),
    }
    if "bounds_of_every_form_ns" in example.expected and example.step is not None:
        found["bounds_of_every_form_ns"] = dict(bounds_of_forms(roofline.problem(example.step, problem.cluster)))
    if missing_link(problem, device) is None:
        found["priority"] = dict(zip(example.ops, priorities(problem, placement).tolist(), strict=True))
    if result.timeline is None or result.peak_memory_bytes is None:
        return found | {"peak_memory_bytes": None}
    timeline = result.timeline
    names = [f"{op}.{k}" if k else op for op, document in zip(example.ops, example.graph["ops"], strict=True)
             for k in range(len(document["outputs"]))]  # fmt: skip
    moved = [f"{names[k]} -> {example.devices[d]}" for k, d in zip(timeline.transfer_output, timeline.transfer_dst, strict=True)]
    sent = zip(timeline.transfer_start_ns.tolist(), timeline.transfer_end_ns.tolist(), strict=True)
    received = zip(timeline.receive_start_ns.tolist(), timeline.receive_end_ns.tolist(), strict=True)
    return found | {
        "starts_ns": dict(zip(example.ops, timeline.start_ns.tolist(), strict=True)),
        "ends_ns": dict(zip(example.ops, timeline.end_ns.tolist(), strict=True)),
        "peak_memory_bytes": dict(zip(example.devices, result.peak_memory_bytes.tolist(), strict=True)),
        "sent_ns": {name: list(times) for name, times in zip(moved, sent, strict=True)},
        "received_ns": {name: list(times) for name, times in zip(moved, received, strict=True) if times[0] >= 0},
    }


def computed_plainly(example: Example) -> dict[str, Any]:
    """The same of the plain simulator, as far as it knows."""
    alone = PlainSimulator(example.graph, example.cluster, example.device, example.schedule, example.priority)
    plain = plain_fusion.simulator(example.graph, example.cluster, example.device, example.schedule, example.priority, example.fusion)
    result = plain.run()
    rules = {"critical-path": plain.rank, "depth": plain.depth, "memory": plain.memory}
    found = {
        "ops": example.ops,
        "time_ns": _table(example, alone.time),
        "contended_ns": _table(example, alone.contended),
        "step_time_ns": result.step_time_ns,
        "busy_ns": dict(zip(example.devices, result.busy_ns, strict=True)),
        "transfers": len(result.transfers),
        "transferred_bytes": result.transferred_bytes,
    }
    if result.peak_memory_bytes is None:
        return found | {"peak_memory_bytes": None}
    if example.schedule in rules:
        found["priority"] = dict(zip(example.ops, rules[example.schedule](), strict=True))
    moved = [(f"{example.ops[t.source[0]]}{f'.{t.source[1]}' if t.source[1] else ''} -> {example.devices[t.there]}", t)
             for t in result.transfers]  # fmt: skip
    return found | {
        "starts_ns": dict(zip(example.ops, result.start_ns, strict=True)),
        "peak_memory_bytes": dict(zip(example.devices, result.peak_memory_bytes, strict=True)),
        "sent_ns": {name: [t.start, t.leaves] for name, t in moved},
        "received_ns": {name: [t.received_from, t.received] for name, t in moved if t.received is not None},
    }


def _table(example: Example, times: list[list[int]]) -> dict[str, dict[str, int]]:
    return {op: dict(zip(example.devices, row, strict=True)) for op, row in zip(example.ops, times, strict=True)}
