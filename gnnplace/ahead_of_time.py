"""Compiles ahead of time what first commands need: `python -m gnnplace.ahead_of_time`, which an installation runs
(`build_backend.py`).

Numba compiles a kernel at its first call, for the types of its arguments. So a small problem is placed here as `place`
and `compare` would: by all planners, freely, by whole modules, in stages, and in memories so small that placements are
repaired. A kernel that this does not call is compiled by the first command that does.
"""

from __future__ import annotations

from dataclasses import replace

from gnnplace.constraints import Constrained, Constraint, constrained
from gnnplace.corpus import manifest
from gnnplace.costs import roofline
from gnnplace.kept import Kept
from gnnplace.portfolio import comparison, portfolio
from gnnplace.problems import Problem
from gnnplace.sources import graphs
from gnnplace.units.granularity import GRANULARITIES

GRAPH, CLUSTER = "dlrm", "k40-2"
EVALUATIONS = 100  # so that the planners and searches of `best` all have their turn
ROOM = 0.7  # of what the graph keeps in memory, in each device


def compile_kernels() -> None:
    """Has kernels compiled, by calling them."""
    problem = graphs.costed(manifest.graph(GRAPH), graphs.cluster(CLUSTER), None, print)
    comparison.compared(
        problem, portfolio.budget(problem, evaluations=EVALUATIONS), portfolio.Options(schedule="critical-path")
    )
    for granularity in GRANULARITIES:
        _place(constrained(problem, Constraint(granularity)))
    _place(constrained(tight(problem), Constraint()))


def _place(under: Constrained) -> None:
    comparison.best(
        under.problem, portfolio.budget(under.problem, evaluations=EVALUATIONS), portfolio.Options(stages=under.stages)
    )


def tight(problem: Problem) -> Problem:
    """The problem on devices none of which holds it alone."""
    room = int(ROOM * problem.graph.persistent_bytes.sum())
    devices = tuple(replace(device, memory_bytes=room) for device in problem.cluster.devices)
    return roofline.problem(problem.graph, replace(problem.cluster, devices=devices))


def main() -> None:
    """Compiles, and keeps the machine code in the package."""
    Kept.installs = True
    compile_kernels()


if __name__ == "__main__":
    main()
