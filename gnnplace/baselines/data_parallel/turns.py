"""The order in which data parallelism runs: one micro-batch of a device after another, and sums first."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from gnnplace.baselines.data_parallel.forms import copies_of
from gnnplace.baselines.data_parallel.shares import Shares
from gnnplace.graph import NONE, ComputationGraph


def turns(graph: ComputationGraph, share: Shares) -> Int64[np.ndarray, " ops"]:
    """A priority for each op. The first micro-batches of all devices come first, then the second ones, and so on."""
    return by_turn(graph, np.concatenate([np.arange(number) for number in share.number]))


def by_turn(graph: ComputationGraph, turn_of: Int64[np.ndarray, " micro_batches"]) -> Int64[np.ndarray, " ops"]:
    """A priority for each op, by the turn of its micro-batch.

    What runs once comes before them, and what is added before all: sums free memory, and others wait for fetches.
    """
    copies = copies_of(graph)
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[graph.order] = np.arange(graph.num_ops)
    once = copies.micro_batch == NONE
    turn = np.where(once, np.where(copies.added, -2, -1), turn_of[copies.micro_batch])
    return -(turn * graph.num_ops + position)
