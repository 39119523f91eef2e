"""The plan of a part of a graph: of a training step without its updates."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from gnnplace.execution.workload import Plan
from gnnplace.graph import CONTROL, ComputationGraph


def without_updates(plan: Plan, whole: ComputationGraph, graph: ComputationGraph) -> Plan:
    """The devices and the order that a plan of `whole` has for `graph`, the same ops by name but for those of the phase `update`.

    Raises ValueError where the two differ in anything else: the plan was made for another step.
    """
    place = {name: op for op, name in enumerate(whole.op_names)}
    if reason := _difference(whole, graph, place):
        raise ValueError(f"plan: was made for another step: {reason}; place this one")
    ops = np.array([place[name] for name in graph.op_names], dtype=np.int64)
    position = np.argsort(plan.order)
    return Plan(plan.devices, plan.device[ops], np.argsort(position[ops]).astype(np.int32))


def _difference(whole: ComputationGraph, graph: ComputationGraph, place: dict[str, int]) -> str | None:
    """The first difference in words, or None."""
    here = set(graph.op_names)
    if missing := [name for name in graph.op_names if name not in place]:
        return f"its graph has no op {missing[0]!r}"
    if more := [op for name, op in place.items() if name not in here and whole.phase[op] != "update"]:
        return f"op {whole.op_names[more[0]]!r} of its graph is not in this one"
    for op, name in enumerate(graph.op_names):
        theirs, ours = _described(whole, place[name]), _described(graph, op)
        if theirs != ours:
            return f"op {name!r} is {theirs} in its graph, and {ours} here"
    ops = np.array([place[name] for name in graph.op_names], dtype=np.int64)
    same = np.array_equal(_data(whole, _renumbered(ops, whole.num_ops)), _data(graph, np.arange(graph.num_ops)))
    return None if same else "ops of its graph have other inputs"


def _described(graph: ComputationGraph, op: int) -> str:
    outputs = slice(graph.output_ptr[op], graph.output_ptr[op + 1])
    sizes = ", ".join(map(str, graph.output_bytes[outputs].tolist()))
    return f"{graph.kind[op]} of {sizes or 'no'} bytes"


def _renumbered(ops: Int64[np.ndarray, " part"], num_ops: int) -> Int64[np.ndarray, " ops"]:
    """The number in the part of each op of the whole, -1 for those outside."""
    number = np.full(num_ops, -1, dtype=np.int64)
    number[ops] = np.arange(len(ops))
    return number


def _data(graph: ComputationGraph, number: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, "edges 3"]:
    """The data edges between ops that have a number, by number: source, output, consumer."""
    source, consumer = number[graph.edge_src], number[graph.edge_dst]
    kept = (source >= 0) & (consumer >= 0) & (graph.edge_output != CONTROL)
    return np.unique(np.stack([source, graph.edge_output, consumer], axis=1)[kept], axis=0)
