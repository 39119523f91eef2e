"""Control edges in executors: they keep the order of ops on a device; to another device they are messages.

An executor enqueues ops in the order of the simulated step and never changes this order. So most control edges between
devices are implied by earlier transfers, and are dropped. The others are transfers of empty tensors, as in TensorFlow.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Int32

from gnnplace.graph import CONTROL, NONE, Categorical, ComputationGraph


def needed(
    graph: ComputationGraph, device: Int32[np.ndarray, " ops"], order: Int32[np.ndarray, " ops"]
) -> Bool[np.ndarray, " edges"]:
    """The edges that must stay: False for control edges between devices that other edges and the devices' orders imply.

    Vector clocks decide which they are (Fidge 1988, Mattern 1989).
    """
    num_devices = int(device.max()) + 1
    done = np.zeros((graph.num_ops, num_devices), dtype=np.int64)  # ops of each device that ended by the end of op i
    clock = np.zeros((num_devices, num_devices), dtype=np.int64)
    result = np.ones(graph.num_edges, dtype=np.bool_)
    for op in order.tolist():
        dst = device[op]
        edges = graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]
        source, control = graph.edge_src[edges], graph.edge_output[edges] == CONTROL
        src = device[source]
        turn = done[source, src]
        implies = done[np.ix_(source, src)] >= turn  # the end of one source implies the end of another ...
        implies &= (source[:, None] != source) | ~control[:, None]  # ... but no control edge implies itself
        implied = implies.any(axis=0) | (clock[dst, src] >= turn)
        result[edges] = ~(control & implied) | (src == dst)
        clock[dst] = np.maximum(clock[dst], done[source].max(axis=0, initial=0))
        clock[dst, dst] += 1
        done[op] = clock[dst]
    return result


def control_messages(
    graph: ComputationGraph, device: Int32[np.ndarray, " ops"], order: Int32[np.ndarray, " ops"]
) -> ComputationGraph:
    """The graph without implied control edges. An op that another device waits for gets one more output, of 0 bytes."""
    kept = needed(graph, device, order)
    src, output, dst = graph.edge_src[kept], graph.edge_output[kept], graph.edge_dst[kept]
    away = (output == CONTROL) & (device[src] != device[dst])
    num_outputs = np.diff(graph.output_ptr)
    more = np.isin(np.arange(graph.num_ops), src[away])
    ptr = np.concatenate([[0], np.cumsum(num_outputs + more)])
    # the new number of each output
    number = np.arange(len(graph.output_bytes)) + (ptr[:-1] - graph.output_ptr[:-1])[graph.output_op]
    alias = np.where(graph.output_alias == NONE, NONE, np.append(number, NONE)[graph.output_alias])

    def with_more(values: np.ndarray, new: int) -> np.ndarray:
        wide = np.full(ptr[-1], new, dtype=values.dtype)
        wide[number] = values
        return wide

    output = np.where(away, num_outputs[src], output).astype(np.int32)
    edges = np.lexsort((dst, output, src))
    return replace(
        graph,
        output_ptr=ptr,
        output_bytes=with_more(graph.output_bytes, 0),
        output_dtype=Categorical(graph.output_dtype.values, with_more(graph.output_dtype.index, NONE)),
        output_rank=with_more(graph.output_rank, NONE),
        output_alias=with_more(alias, NONE),
        output_is_result=with_more(graph.output_is_result, 0),
        edge_src=src[edges],
        edge_output=output[edges],
        edge_dst=dst[edges],
    )
