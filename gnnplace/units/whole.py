"""What stays whole in every form of a step: parts of one micro-batch, such as modules, and groups that keep them so.

The copies of a part for a micro-batch stand on one device. So does the rest of it on each replica, its *home*: what
runs once, sums, rings and fetches. Unless copies are free or fetched, all that a replica has of a part stands at home.
The inputs of a micro-batch are data, which may lie anywhere where copies are free or fetched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Int64

from gnnplace.choices import FREELY
from gnnplace.graph import NONE, Categorical, ComputationGraph
from gnnplace.units.modules import modules
from gnnplace.units.units import colocation_closure
from gnnplace.units.variables import merged


def together(graph: ComputationGraph, part: Int64[np.ndarray, " ops_of_one"]) -> Iterator[Int64[np.ndarray, " ops"]]:
    """Keys of the ops of a graph. Ops with a key in common stand on one device; the key `NONE` says nothing.

    `part` has the number of each op's part in the graph of one micro-batch, or `NONE`.
    """
    copies = graph.copies
    if copies is None:
        yield part
        return
    number, added = part[copies.source], copies.added.copy()
    added[graph.output_op[graph.output_is_result]] = False  # a mean is a result, and all else that is added is none
    kept, of_batch = number != NONE, ~added & (copies.micro_batch != NONE)
    works = of_batch & ~graph.canonical_kind.among(["input"])
    yield np.where(kept & works, number * copies.micro_batches + copies.micro_batch, NONE)
    at_home = ~of_batch | (copies.placed not in FREELY)
    yield np.where(kept & at_home, number * copies.replicas + copies.replica, NONE)


def tied(graph: ComputationGraph, part: Int64[np.ndarray, " ops_of_one"]) -> ComputationGraph:
    """The graph with a colocation group for everything that stays together so that all parts are whole.

    In a step of several micro-batches, `graph.copies.part` remembers the parts.
    """
    label = colocation_closure(graph)
    for key in together(graph, part):
        label = merged(label, key)
    copies = None if graph.copies is None else replace(graph.copies, part=part)
    return replace(graph, colocation=_groups(graph, label), copies=copies)


def _groups(graph: ComputationGraph, label: Int64[np.ndarray, " ops"]) -> Categorical:
    """A colocation group for each label of several ops, named by the module of its first op."""
    module_map = modules(graph)
    labels, first, number, count = np.unique(label, return_index=True, return_inverse=True, return_counts=True)
    index = np.where(count > 1, np.cumsum(count > 1) - 1, NONE)[number].astype(np.int32)
    several = first[count > 1].tolist()
    return Categorical(tuple(module_map.names[module_map.module[op]] for op in several), index)
