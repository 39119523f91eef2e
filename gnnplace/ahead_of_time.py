"""Compiles kernels at installation: `build_backend.py` runs `python -m gnnplace.ahead_of_time`.

Numba compiles a kernel at its first call, for the types of its arguments. So a small problem is placed here as by
`place` and `compare`: by all planners, without a constraint, by whole modules, in stages, and with memories so small
that placements are repaired. A kernel that is not called here is compiled by the first command that calls it.
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
EVALUATIONS = 100  # enough for every planner and search of `best`
ROOM = 0.7  # memory of each device / persistent bytes of the graph


def compile_kernels() -> None:
    """Compiles kernels by calling them."""
    problem = graphs.costed(manifest.graph(GRAPH), graphs.cluster(CLUSTER), None, print, print)
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
    """The problem on devices of which none can hold the whole graph."""
    room = int(ROOM * problem.graph.persistent_bytes.sum())
    devices = tuple(replace(device, memory_bytes=room) for device in problem.cluster.devices)
    return roofline.problem(problem.graph, replace(problem.cluster, devices=devices))


def main() -> None:
    """Compiles kernels and keeps their machine code in the package."""
    Kept.installs = True
    compile_kernels()


if __name__ == "__main__":
    main()
