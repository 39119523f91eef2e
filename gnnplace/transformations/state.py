"""Splits ops that hold parameters and compute, as those of published profiles do: `NAME/state`, `NAME/read`, `NAME`.

The state is a variable and the read its alias, as in captured graphs. The op computes as before.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Int64

from gnnplace.graph import Categorical, ComputationGraph, Op, Output
from gnnplace.transformations.assembly import Assembly


def with_state_apart(graph: ComputationGraph) -> tuple[ComputationGraph, Int64[np.ndarray, " ops"]]:
    """A graph in which only sources and updates have persistent bytes, and the given graph's op of each of its ops."""
    works = (np.diff(graph.in_ptr) > 0) | (graph.flops > 0) | (graph.given_time_ns > 0).any(axis=1)
    split = np.flatnonzero((graph.persistent_bytes > 0) & works & ~graph.phase.among(["update"])).tolist()
    origin = np.arange(graph.num_ops)
    if not split:
        return graph, origin
    assembly = Assembly(graph, origin, graph.op_names)
    copied = assembly.copied
    copied["output_alias"] = graph.output_alias
    copied["persistent_bytes"][split] = 0
    copied["bytes_accessed"][split] = graph.effective_bytes_accessed[split]
    copied["colocation"] = _with_groups(graph, split)
    assembly.connect(graph.edge_src, graph.edge_output, graph.edge_dst)
    for op in split:
        name, allowed = graph.op_names[op], graph.allowed[op]
        variable = Op(
            f"{name}/state", "variable", (Output(0),), persistent_bytes=int(graph.persistent_bytes[op]), kernel=False,
            allowed=None if allowed is None else tuple(allowed.split(",")), colocation=copied["colocation"][op],
            layer=graph.layer[op], phase="other", canonical_kind="variable",
        )  # fmt: skip
        weights = Output(int(graph.persistent_bytes[op]))
        state = assembly.add(variable)
        read = replace(variable, name=f"{name}/read", kind="read", outputs=(weights,), persistent_bytes=0)
        alias = assembly.add(read, assembly.first_output(state))
        assembly.connect([state, alias], [0, 0], [alias, op])
    split_graph = ComputationGraph(name=graph.name, **assembly.columns())
    return split_graph, np.concatenate([origin, np.repeat(split, 2)])


def _with_groups(graph: ComputationGraph, split: list[int]) -> Categorical:
    """The colocation groups, one of its own for each op that is split and has none."""
    names = [f"{graph.op_names[op]}/state" for op in split]
    if twice := sorted({*names} & {*graph.colocation.values}):
        raise ValueError(f"colocation group {twice[0]!r} has the name of another, of an op and its state; rename it")
    return graph.colocation.filled(split, names)
