"""Steps of several micro-batches in the plain implementation, which shares nothing with the package but the records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from support.plain_families import Families
from support.plain_fetches import fetched
from support.plain_repetition import Parts, records, split
from support.plain_steps import Step

from gnnplace.graph import ComputationGraph, Copies
from gnnplace.transformations.parallelism import Parallelism


def plain_step(graph: ComputationGraph, form: Parallelism) -> ComputationGraph:
    """The step of a graph of one micro-batch."""
    if form.micro_batches == 1:
        return graph
    shares = form.shares or (form.micro_batches,)
    ops, edges, origin = split(*records(graph))
    parts = Parts(ops, edges, origin, form.shared)
    step = Step(parts, form.copies, Families(parts, shares, form.family_shares, form.one_home), form.ring_size)
    made, joins, keys = step.ops(), step.edges(), step.keys
    if form.copies == "fetched":
        made, joins, keys = fetched(step, made, joins)
    source = np.array([origin[step.source(key)] for key in keys], np.int32)
    micro_batch, replica = (np.array([key[column] for key in keys], np.int32) for column in (3, 4))
    added = np.array([what != "op" or i >= graph.num_ops for what, i, *_ in keys])
    record = Copies(
        graph, shares, source, micro_batch, replica, added, form.copies, form.shared, form.one_home, form.family_shares, form.ring_size
    )
    return replace(ComputationGraph.from_ops(graph.name, made, joins), copies=record)
