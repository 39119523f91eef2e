"""The step of several micro-batches: their gradients are summed, and one update follows.

The graph is that of one micro-batch (docs/execution-model.md#micro-batches).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import get_args

from gnnplace.choices import CopiesName
from gnnplace.graph import ComputationGraph
from gnnplace.transformations.copying import Copying
from gnnplace.transformations.fetches import with_fetches
from gnnplace.transformations.gathering import Gathering


def micro_batches(
    graph: ComputationGraph, number: int, copies: CopiesName = "together", shared: Collection[str] = ()
) -> ComputationGraph:
    """The step of `number` micro-batches, each of which is `graph`. One is the graph itself.

    Variables, their update and what depends on variables alone run once, other ops once for each micro-batch, as
    `NAME@0`, `NAME@1`, ... A gradient that the update reads is summed in place, as `NAME/sum@1`, ... An inference graph
    has `number` requests in flight.

    Args:
        copies: "together": all copies of an op stand on one device; "free": a copy may stand anywhere, to which weights
            are sent and from which gradients come back; "fetched": free, and a weight is sent anew for each micro-batch
            and pass, not kept for the step; "anchored": free, but what runs once stands on one device; "whole": all
            ops do
        shared: the names of inputs that all micro-batches read; scalar inputs are always shared

    Raises ValueError for a number below 1, for a step that is too large, for a graph whose phases don't tell what runs
    once, for a name of no input, and for names of ops that copies of others would have.

        >>> from gnnplace.corpus import manifest
        >>> graph = manifest.graph("dlrm")
        >>> step = micro_batches(graph, 4)
        >>> step.copies.micro_batches, int(step.persistent_bytes.sum() - graph.persistent_bytes.sum())
        (4, 0)
    """
    check_number(number)
    if copies not in get_args(CopiesName):
        raise ValueError(f"copies: {copies!r} is none of {', '.join(get_args(CopiesName))}")
    if number == 1:
        return graph
    step = Gathering(Copying(graph, [number], copies, shared)).step()
    return with_fetches(step) if copies == "fetched" else step


def check_number(number: object) -> None:
    """Raises ValueError for what is no number of micro-batches."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"micro_batches: {number!r} is no number of micro-batches; an integer of at least 1")
