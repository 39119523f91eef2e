"""The graph of a step without some of its ops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Bool

from gnnplace.graph import NONE, ComputationGraph
from gnnplace.transformations.assembly import Assembly


def without_ops(graph: ComputationGraph, removed: Bool[np.ndarray, " ops"]) -> ComputationGraph:
    """The graph of the other ops, in their order, with the edges among them. No output of theirs aliases a removed one.

    >>> from gnnplace.corpus import manifest
    >>> graph = manifest.graph("dlrm")
    >>> without_ops(graph, graph.phase.among(["update"])).num_ops < graph.num_ops
    True
    """
    kept = np.flatnonzero(~removed)
    assembly = Assembly(graph, kept, [graph.op_names[op] for op in kept.tolist()])
    number, output = np.full(graph.num_ops, NONE), np.full(len(graph.output_bytes) + 1, NONE)
    number[kept], output[assembly.output] = np.arange(len(kept)), np.arange(len(assembly.output))
    assembly.copied["output_alias"] = output[graph.output_alias[assembly.output]]
    src, dst = number[graph.edge_src], number[graph.edge_dst]
    among = (src != NONE) & (dst != NONE)
    assembly.connect(src[among], graph.edge_output[among], dst[among])
    copies = graph.copies and replace(
        graph.copies,
        source=graph.copies.source[kept],
        micro_batch=graph.copies.micro_batch[kept],
        replica=graph.copies.replica[kept],
        added=graph.copies.added[kept],
    )
    return ComputationGraph(name=graph.name, **assembly.columns(), copies=copies)
