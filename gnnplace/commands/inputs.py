"""What arguments that several commands share stand for: the problem, the constraint, the fusion."""

from __future__ import annotations

import argparse

from gnnplace.constraints import Constraint
from gnnplace.fused import Fused, fused
from gnnplace.fusion.defaults import default
from gnnplace.problems import Problem
from gnnplace.report import terminal
from gnnplace.sources import graphs as sources
from gnnplace.sources.graphs import Reading


def constraint(arguments: argparse.Namespace) -> Constraint:
    """What a placement has to keep to."""
    return Constraint(
        arguments.granularity, tuple(arguments.keep_whole), arguments.devices, arguments.accelerators_only, arguments.max_cuts
    )


def reading(arguments: argparse.Namespace) -> Reading:
    """How GRAPH is read."""
    return Reading(tuple(arguments.dim), tuple(arguments.fetch), arguments.format, arguments.mode)


def problem(arguments: argparse.Namespace) -> Problem:
    """The problem of GRAPH and CLUSTER under --costs. CLUSTER is read first: a graph may take minutes to capture."""
    cluster, graph = sources.cluster(arguments.cluster), sources.graph(arguments.graph, reading(arguments))
    return sources.costed(graph, cluster, arguments.costs, terminal.progress(arguments.quiet))


def fusion(arguments: argparse.Namespace, problem: Problem) -> Fused | None:
    """The problem fused as --fusion says, None without it."""
    return None if arguments.fusion is None else fused(problem, default(problem))
