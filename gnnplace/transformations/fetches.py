"""Weights that are fetched for each use and kept no longer, as fully sharded data parallelism does.

A device keeps what it received, with all its aliases, until its last use there, so that a weight that is sent once is
kept for the step. A fetch is an op at the weight's home whose output is no alias: it is sent by itself, to one
micro-batch and one pass, and lives as long as they use it. It starts during the block before the one that uses it
(Zhao et al., PyTorch FSDP, VLDB 2023, section 3.3.2: prefetching).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from gnnplace.graph import CONTROL, NONE, Categorical, ComputationGraph, Op, Output
from gnnplace.transformations.assembly import Assembly
from gnnplace.transformations.repetition import BACKWARD, SCALAR_BYTES, written


class Use(NamedTuple):
    """The ops of a micro-batch that read an output of a weight in a pass, in topological order."""

    output: int
    in_backward: bool
    readers: Sequence[int]


def with_fetches(graph: ComputationGraph) -> ComputationGraph:
    """The step of several micro-batches in which each pass of each of them fetches the weights that it reads.

    `NAME/fetch@2` is read by the forward pass of micro-batch 2 in place of the weight, `NAME/fetch@2b` by its backward
    pass.
    """
    copies = graph.copies
    assert copies is not None
    assembly = Assembly(graph, np.arange(graph.num_ops), graph.op_names)
    assembly.copied["output_alias"] = graph.output_alias.copy()
    fetched = _fetched(graph)
    groups = assembly.copied["colocation"] = _with_groups(graph, fetched)
    kept = np.ones(graph.num_edges, dtype=bool)
    kept[fetched] = False
    assembly.connect(graph.edge_src[kept], graph.edge_output[kept], graph.edge_dst[kept])
    sources, of = [], []
    for copy, uses in sorted(_by_micro_batch(graph, fetched).items()):
        for use, start in zip(uses, _starts(graph, uses), strict=True):
            op = int(graph.output_op[use.output])
            index = use.output - int(graph.output_ptr[op])
            owner = int(graph.output_op[graph.output_root[use.output]])
            tag = f"/fetch{index or ''}@{copy}{'b' * use.in_backward}"
            fetch = assembly.add(_fetch(graph, use, tag, owner, groups[owner]))
            assembly.connect([op], [index], [fetch])
            assembly.connect([fetch] * len(use.readers), [0] * len(use.readers), use.readers)
            if start != NONE:
                assembly.connect([start], [CONTROL], [fetch])
            _move_aliases(graph, assembly, use, fetch)
            sources.append(int(copies.source[op]))
            of.append(copy)
    record = replace(
        copies,
        source=np.concatenate([copies.source, sources]).astype(np.int32),
        micro_batch=np.concatenate([copies.micro_batch, of]).astype(np.int32),
        replica=np.concatenate([copies.replica, np.zeros(len(of))]).astype(np.int32),
        added=np.concatenate([copies.added, np.ones(len(of), dtype=bool)]),
    )
    return ComputationGraph(name=graph.name, **assembly.columns(), copies=record)


def _fetched(graph: ComputationGraph) -> Int64[np.ndarray, " edges"]:
    """The edges that carry a variable, or what is derived from variables, to a copy; running state is none of these."""
    copies = graph.copies
    assert copies is not None
    once = copies.micro_batch == NONE
    held = once & (graph.persistent_bytes > 0)
    for op in graph.order[(once & ~graph.phase.among(["update"]))[graph.order]].tolist():
        edges = graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]
        held[op] |= bool(held[graph.edge_src[edges[graph.edge_output[edges] != CONTROL]]].any())
    repeated = ~once & ~copies.added
    fetched = held[graph.edge_src] & repeated[graph.edge_dst] & (graph.edge_bytes > SCALAR_BYTES)
    return np.flatnonzero(fetched & ~_running(graph)[graph.output_op[graph.output_root[graph.edge_data]]])


def _running(graph: ComputationGraph) -> Bool[np.ndarray, " ops"]:
    """True for variables that a copy writes."""
    copies = graph.copies
    assert copies is not None
    once = (copies.micro_batch == NONE) & ~copies.added
    writer, variable = written(copies.original).T
    by_copies = np.isin(writer, copies.source[~once & ~copies.added])
    return once & np.isin(copies.source, variable[by_copies])


def _by_micro_batch(graph: ComputationGraph, fetched: Int64[np.ndarray, " edges"]) -> dict[int, list[Use]]:
    """The uses of weights by each micro-batch, in topological order of their first readers."""
    copies = graph.copies
    assert copies is not None
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[graph.order] = np.arange(graph.num_ops)
    backward = graph.phase.among(BACKWARD)
    readers: dict[int, dict[tuple[int, bool], list[int]]] = defaultdict(lambda: defaultdict(list))
    for edge in fetched[np.argsort(position[graph.edge_dst[fetched]], kind="stable")].tolist():
        reader = int(graph.edge_dst[edge])
        use = int(graph.edge_data[edge]), bool(backward[reader])
        readers[int(copies.micro_batch[reader])][use].append(reader)
    return {copy: [Use(*use, ops) for use, ops in each.items()] for copy, each in readers.items()}


def _starts(graph: ComputationGraph, uses: Sequence[Use]) -> Iterator[int]:
    """The op that each use's fetch waits for: the first reader of the block before; `NONE` in the first block."""
    before, current, block = NONE, NONE, None
    for use in uses:
        first = use.readers[0]
        if block is None or graph.block[first] != block:
            before, current, block = current, first, graph.block[first]
        yield before


def _with_groups(graph: ComputationGraph, fetched: Int64[np.ndarray, " edges"]) -> Categorical:
    """The colocation groups, one of its own for each op that owns a weight's buffer and has none."""
    owners = np.unique(graph.output_op[graph.output_root[graph.edge_data[fetched]]])
    alone = owners[graph.colocation.index[owners] == NONE].tolist()
    names = [f"{graph.op_names[op]}/fetch" for op in alone]
    if twice := sorted({*names} & {*graph.colocation.values}):
        raise ValueError(
            f"colocation group {twice[0]!r} has the name of another, of a weight and its fetches; rename it"
        )
    return graph.colocation.filled(alone, names)


def _fetch(graph: ComputationGraph, use: Use, tag: str, owner: int, group: str | None) -> Op:
    """The op that fetches an output of an op, beside the `owner` of its buffer."""
    output, kinds = use.output, graph.allowed[owner]
    op = int(graph.output_op[output])
    return Op(
        f"{graph.op_names[op]}{tag}", "fetch",
        (Output(int(graph.output_bytes[output]), graph.shape(output), graph.output_dtype[output]),),
        kernel=False, allowed=None if kinds is None else tuple(kinds.split(",")), colocation=group,
        layer=graph.layer[op], phase="backward_data" if use.in_backward else "forward", canonical_kind="other",
    )  # fmt: skip


def _move_aliases(graph: ComputationGraph, assembly: Assembly, use: Use, fetch: int) -> None:
    """A view that a copy makes of the weight is one of what is fetched."""
    for reader in use.readers:
        outputs = np.arange(graph.output_ptr[reader], graph.output_ptr[reader + 1])
        views = outputs[graph.output_alias[outputs] == use.output]
        assembly.copied["output_alias"][views] = assembly.first_output(fetch)
