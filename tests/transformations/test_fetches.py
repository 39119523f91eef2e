"""Weights that are fetched for each use: what a fetch reads, waits for, and leaves in memory."""

from __future__ import annotations

import numpy as np
from support.graphs import equal_gpus
from support.layered import WEIGHT, layered

from gnnplace.costs.roofline import problem
from gnnplace.graph import CONTROL, NONE, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.simulator.simulator import simulate
from gnnplace.transformations.micro_batches import micro_batches


def waits(graph: ComputationGraph, name: str) -> dict[str, bool]:
    """What an op reads or waits for, by name: True for data."""
    op = graph.op_names.index(name)
    edges = graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]
    return {graph.op_names[graph.edge_src[edge]]: bool(graph.edge_output[edge] != CONTROL) for edge in edges}


def test_a_pass_of_a_micro_batch_fetches_a_weight_with_the_block_before():
    step = micro_batches(layered(3), 2, "fetched")
    assert waits(step, "w0/read/fetch@1") == {"w0/read": True}
    assert waits(step, "w2/read/fetch@1") == {"w2/read": True, "f1@1": False}
    assert waits(step, "w2/read/fetch@1b") == {"w2/read": True, "f1@1": False}  # the block of the pass's end
    assert waits(step, "w0/read/fetch@1b") == {"w0/read": True, "b1@1": False}
    assert waits(step, "f2@1") == {"f1@1": True, "w2/read/fetch@1": True}
    assert waits(step, "b2@1") == {"loss/mean@1": True, "w2/read/fetch@1b": True}


def test_a_fetch_is_no_alias_and_stands_with_its_weight():
    step = micro_batches(layered(2), 2, "fetched")
    fetches = [op for op, name in enumerate(step.op_names) if "/fetch@" in name]
    assert len(fetches) == 2 * 2 * 2
    assert (step.output_alias[step.output_ptr[fetches]] == NONE).all()
    assert {step.colocation[op] for op in fetches} == {"w0", "w1"}


def test_a_device_keeps_fetched_weights_no_longer_than_their_use():
    """gpu:1 computes both micro-batches with weights of gpu:0: eight of them if kept, at most three if fetched."""
    peaks = {}
    for copies in ("free", "fetched"):
        step = micro_batches(layered(8, activation=1), 2, copies)
        posed = problem(step, equal_gpus(2))
        repeated = (step.copies.micro_batch != NONE) & ~step.copies.added
        turn = -np.where(repeated, step.copies.micro_batch, -1).astype(np.int64)
        placed = Placement(repeated.astype(np.int32), "given", turn)
        peaks[copies] = int(simulate(posed, [placed])[0].peak_memory_bytes[1])
    assert peaks["free"] > 8 * WEIGHT > 6 * WEIGHT > peaks["fetched"]
