"""`gnnplace compare`: every planner on one problem, beside the bound that no placement can pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gnnplace import build
from gnnplace.commands import inputs, terminal
from gnnplace.commands.candidates import Candidate, candidates
from gnnplace.commands.usage import DONE, NOTHING_FEASIBLE, Parser
from gnnplace.evaluate.bounds import bound_name, lower_bound
from gnnplace.evaluate.simulator import simulate
from gnnplace.problem import Problem


def main(arguments: Sequence[str]) -> int:
    """Step time, memory and planning time of every planner on one problem, fastest feasible first."""
    parser = Parser("compare", main.__doc__ or "")
    inputs.add_problem_arguments(parser)
    inputs.add_planning_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    chosen = parser.parse_args(arguments)
    problem = inputs.problem(chosen)
    planners = build.planners(problem, simulate, chosen.seed)
    found = candidates(problem, planners, chosen.schedule, terminal.progress(chosen.quiet))
    if chosen.json:
        terminal.print_json(_document(problem, found))
    else:
        _print(problem, found)
    return DONE if any(candidate.result.infeasible is None for candidate in found) else NOTHING_FEASIBLE


def _document(problem: Problem, found: list[Candidate]) -> dict[str, Any]:
    return {
        "graph": problem.graph.name,
        "cluster": problem.cluster.name,
        "ops": problem.num_ops,
        "bound_ns": lower_bound(problem),
        "schedule": found[0].result.schedule,
        "bound": bound_name(problem),
        "planners": [_row(problem, candidate) for candidate in found],
        "missing": build.missing(),
    }


def _row(problem: Problem, candidate: Candidate) -> dict[str, Any]:
    names, result = problem.cluster.device_names, candidate.result
    peaks = None if result.peak_memory_bytes is None else dict(zip(names, result.peak_memory_bytes.tolist(), strict=True))
    return {
        "planner": candidate.planner,
        "step_time_ns": result.step_time_ns,
        "infeasible": result.infeasible,
        "peak_memory_bytes": peaks,
        "planning_ns": candidate.planning_ns,
        "fifo_step_time_ns": candidate.fifo.step_time_ns,
        "busy_ns": dict(zip(names, result.busy_ns.tolist(), strict=True)),
        "transferred_bytes": result.transferred_bytes,
    }


def _print(problem: Problem, found: list[Candidate]) -> None:
    bound = lower_bound(problem)
    title = (
        f"{problem.graph.name} ({problem.num_ops:,} ops) on {problem.cluster.name}; "
        f"bound {terminal.milliseconds(bound)} ({bound_name(problem)})"
    )
    columns = ("planner", found[0].result.schedule, "over bound", "fifo", "largest peak", "transferred", "planning", "feasible")
    terminal.print_table(columns, [_cells(candidate, bound) for candidate in found], title)
    for name, how in build.missing().items():
        print(f"{name}: {how}")


def _cells(candidate: Candidate, bound: int) -> tuple[str, ...]:
    result = candidate.result
    over = terminal.NONE if result.step_time_ns is None else f"{result.step_time_ns / bound:.2f}x"
    return (
        candidate.planner,
        terminal.milliseconds(result.step_time_ns),
        over,
        terminal.milliseconds(candidate.fifo.step_time_ns),
        terminal.mebibytes(None if result.peak_memory_bytes is None else int(result.peak_memory_bytes.max())),
        terminal.mebibytes(result.transferred_bytes),
        terminal.milliseconds(candidate.planning_ns),
        result.infeasible or "yes",
    )
