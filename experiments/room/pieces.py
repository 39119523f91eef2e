"""A problem whose ops can be interrupted, nearly: each in short pieces that its device runs one after the other, others in between.

Bounds hold for that, too: no load, path or window knows whether an op runs at a stretch. A step does: a device that has begun a long op
can't turn to a more urgent one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Int64

from gnnplace.graph import CONTROL, NONE, Categorical, ComputationGraph
from gnnplace.problems import Problem

PER_OP = ("kind", "canonical_kind", "phase", "layer", "allowed", "kernel", "block", "time_step", "given_time_ns")
OF_THE_LAST = ("flops", "bytes_accessed", "persistent_bytes", "workspace_bytes")  # and the outputs


def in_pieces(problem: Problem, most_ns: int) -> Problem:
    """The problem with every op in pieces of at most so many nanoseconds on its fastest device, all of them on one device.

    The first and the last piece wait for all inputs, so that these stay in memory; what pieces take in sum is what the op takes, but for
    less than a nanosecond each. An op keeps its number as its last piece; the others follow behind all ops.
    """
    assert problem.contended_ns is None
    count = -(-problem.time_ns.min(axis=1) // most_ns)
    time_ns = -(-problem.time_ns // count[:, None])
    of = np.repeat(np.arange(problem.num_ops), count - 1)
    return Problem(_pieces(problem.graph, of), problem.cluster, np.concatenate([time_ns, time_ns[of]]))


def _pieces(graph: ComputationGraph, of: Int64[np.ndarray, " pieces"]) -> ComputationGraph:
    """The graph with pieces of the ops `of`, in rising order, behind it."""
    pieces, rows = graph.num_ops + np.arange(len(of)), np.concatenate([np.arange(graph.num_ops), of])
    src, output, dst = _edges(graph, of, pieces)
    order = np.lexsort((dst, output, src))
    return replace(
        graph,
        op_names=(*graph.op_names, *(f"{graph.op_names[op]}/piece {piece}" for op, piece in zip(of, pieces, strict=True))),
        colocation=_taken(_tied(graph, of), rows),
        **{name: _taken(getattr(graph, name), rows) for name in PER_OP},
        **{name: np.append(column := getattr(graph, name), np.zeros_like(column, shape=len(of))) for name in OF_THE_LAST},
        output_ptr=np.append(graph.output_ptr, np.full(len(of), graph.output_ptr[-1])),
        edge_src=src[order].astype(np.int32),
        edge_output=output[order].astype(np.int32),
        edge_dst=dst[order].astype(np.int32),
    )


def _edges(graph: ComputationGraph, of: Int64[np.ndarray, " pieces"], pieces: Int64[np.ndarray, " pieces"]) -> list[np.ndarray]:
    """Sources, outputs and destinations: the graph's own, its inputs of every first piece, and each piece before the next."""
    first, last = np.append(True, of[1:] != of[:-1]), np.append(of[1:] != of[:-1], True)
    begins = np.full(graph.num_ops, NONE)
    begins[of[first[: len(of)]]] = pieces[first[: len(of)]]
    into = begins[graph.edge_dst] != NONE
    following = np.where(last[: len(of)], of, pieces + 1)
    return [
        np.concatenate([graph.edge_src, graph.edge_src[into], pieces]),
        np.concatenate([graph.edge_output, graph.edge_output[into], np.full(len(of), CONTROL)]),
        np.concatenate([graph.edge_dst, begins[graph.edge_dst[into]], following]),
    ]


def _tied(graph: ComputationGraph, of: Int64[np.ndarray, " pieces"]) -> Categorical:
    """Colocation groups in which each op in pieces is in one."""
    alone = np.intersect1d(of, np.flatnonzero(graph.colocation.index == NONE))
    index = graph.colocation.index.copy()
    index[alone] = len(graph.colocation.values) + np.arange(len(alone))
    return Categorical((*graph.colocation.values, *(f"pieces of {graph.op_names[op]}" for op in alone)), index)


def _taken(column: np.ndarray | Categorical, rows: Int64[np.ndarray, " rows"]) -> np.ndarray | Categorical:
    return Categorical(column.values, column.index[rows]) if isinstance(column, Categorical) else column[rows]
