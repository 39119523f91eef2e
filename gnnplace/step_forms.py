"""The problem of another form of a step of several micro-batches, with the times of the one that is given.

All forms of a problem are posed here, so what a constraint keeps whole in the given form is whole in every form.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnplace.choices import CopiesName
from gnnplace.costs.roofline import times_ns
from gnnplace.graph import ComputationGraph
from gnnplace.problems import Problem
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.units.whole import tied


def reformed(problem: Problem, graph: ComputationGraph) -> Problem:
    """The problem of `graph`, which has the micro-batches of the problem's graph, under the problem's constraint.

    A copy takes the time of a copy of the same op. Ops that are added (sums, rings) take roofline times.
    """
    before, after = problem.graph.copies, graph.copies
    assert before is not None and after is not None and before.original is after.original
    graph = graph if before.part is None else tied(graph, before.part)
    row = np.zeros(before.original.num_ops, dtype=np.int64)
    row[before.source[~before.added]] = np.flatnonzero(~before.added)
    added, rows = after.added[:, None], row[after.source]
    alone, contended = times_ns(graph, problem.cluster)
    time_ns = np.where(added, alone, problem.time_ns[rows])
    if problem.contended_ns is None:
        return Problem(graph, problem.cluster, time_ns)
    slower = alone if contended is None else contended
    return Problem(graph, problem.cluster, time_ns, np.where(added, slower, problem.contended_ns[rows]))


def freed(problem: Problem, copies_stand: CopiesName = "free") -> Problem:
    """The problem in its form, but with copies that stand freely, or as `copies_stand` says."""
    copies = problem.graph.copies
    assert copies is not None
    return reformed(problem, replace(Parallelism.in_graph(problem.graph), copies=copies_stand).of(copies.original))
