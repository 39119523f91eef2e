"""Other forms of the step of a problem: replicas, and copies that stand freely."""

from __future__ import annotations

from collections.abc import Sequence

from gnnplace.baselines.data_parallel.shares import Shares
from gnnplace.choices import CopiesName
from gnnplace.graph import ComputationGraph, Copies
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Proposal, score
from gnnplace.step_forms import reformed
from gnnplace.transformations.micro_batches import micro_batches
from gnnplace.transformations.replicas import replicas


def copies_of(graph: ComputationGraph) -> Copies:
    """The record of a step of several micro-batches. Raises ValueError for the step of one."""
    if graph.copies is None:
        raise ValueError(f"{graph.name}: is a step of one micro-batch; data parallelism needs several")
    return graph.copies


def original(problem: Problem) -> ComputationGraph:
    """The graph of a micro-batch of the problem."""
    return copies_of(problem.graph).original


def replicated(problem: Problem, share: Shares, placed: CopiesName, one_home: Sequence[str] = ()) -> Problem:
    """The problem with a replica for each device of the shares."""
    copies = copies_of(problem.graph)
    graph = replicas(copies.original, share.number.tolist(), placed, copies.shared, one_home, ring_size=share.ring_size)
    return reformed(problem, graph)


def sharded(problem: Problem, placed: CopiesName) -> Problem:
    """The problem with a single replica, whose copies may stand anywhere; weights are kept or fetched (`placed`)."""
    copies = copies_of(problem.graph)
    return reformed(problem, micro_batches(copies.original, copies.micro_batches, placed, copies.shared))


def best_of(proposals: Sequence[Proposal], evaluate: Evaluator) -> Proposal:
    """The proposal with the best score, the first on a tie."""
    return min(proposals, key=lambda each: score(each.problem, evaluate(each.problem, [each.placement])[0]))
