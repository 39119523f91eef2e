"""The end of a training of several policies, or under a budget of
evaluations: what each found, beside searches and the bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gnnplace.bounds.bounds import bound_name, lower_bound
from gnnplace.commands.seeds_table import BEST_FOUND, GREEDY, Outcome, over_seeds, shown
from gnnplace.commands.training_table import Known
from gnnplace.portfolio.candidates import Candidate
from gnnplace.problems import Problem
from gnnplace.report import terminal
from gnnplace.report.learning_curves import MeanOverSeeds, estimate
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.evaluations import searches


class Method(NamedTuple):
    """The runs of a policy, one a seed, and how many evaluations each took, None where nobody counted."""

    outcomes: list[Outcome]
    evaluations: int | None


class Row(NamedTuple):
    """What a planner found over seeds, None where some seed found nothing feasible."""

    planner: str
    greedy: MeanOverSeeds | None
    best_found: MeanOverSeeds | None
    evaluations: int | None


class ComparedMethods(NamedTuple):
    """Methods on one problem, in the order in which they were named, and
    then searches; and the best heuristic, if any was asked.
    """

    problem: Problem
    seeds: list[int]
    rows: list[Row]
    heuristic: Candidate | None


def compared(methods: Mapping[str, Method], heuristics: Known, evaluations: int | None) -> dict[str, ComparedMethods]:
    """Every problem by its label.

    Where heuristics are known, searches get as many `evaluations`; none is asked without.
    """
    first = next(iter(methods.values())).outcomes
    tables = {}
    for label, problem in first[0].problems.items():
        rows = [_row(name, method, label) for name, method in methods.items()]
        rows += _searched(problem, first, evaluations) if evaluations is not None and label in heuristics else []
        tables[label] = ComparedMethods(
            problem, [each.seed for each in first], rows, next(iter(heuristics.get(label, [])), None)
        )
    return tables


def document(tables: Mapping[str, ComparedMethods]) -> list[dict[str, Any]]:
    """A row for each problem, for programs."""
    return [
        {
            "problem": label,
            "bound_ns": lower_bound(each.problem),
            "seeds": each.seeds,
            "best_heuristic": None if each.heuristic is None else _fastest(each.heuristic),
            "planners": [
                row._asdict()
                | {name: None if value is None else value._asdict() for name, value in _times(row).items()}
                for row in each.rows
            ],
        }
        for label, each in tables.items()
    ]


def print_tables(tables: Mapping[str, ComparedMethods]) -> None:
    """A table for each problem, on stdout: geometric means over seeds
    and 95 % intervals (Student's t of the logarithms).
    """
    for each in tables.values():
        bound_ns = lower_bound(each.problem)
        rows = [_cells(row, bound_ns) for row in each.rows]
        if each.heuristic is not None:
            time_ns = each.heuristic.step_time_ns
            alone = None if time_ns is None else estimate([float(time_ns)])
            rows.append(_cells(Row(f"best heuristic: {each.heuristic.planner}", None, alone, None), bound_ns))
        rows.append((f"lower bound ({bound_name(each.problem)})", "", shown(estimate([float(bound_ns)])), "1.000", ""))
        seeds = ", ".join(map(str, each.seeds))
        title = (
            f"{each.problem.graph.name} ({each.problem.num_ops:,} ops) on {each.problem.cluster.name}, seeds {seeds}"
        )
        terminal.print_table(("planner", "greedy\nms", "best found\nms", "over the bound", "evaluations"), rows, title)


def _row(name: str, method: Method, label: str) -> Row:
    greedy, best = (over_seeds(method.outcomes, label, row) for row in (GREEDY, BEST_FOUND))
    return Row(name, greedy, best, method.evaluations)


def _searched(problem: Problem, outcomes: Sequence[Outcome], evaluations: int) -> list[Row]:
    by_seed = [searches(problem, evaluations, each.seed, each.rule) for each in outcomes]
    rows = []
    for name in by_seed[0]:
        results = simulate(problem, [placements[name] for placements in by_seed])
        times = [result.feasible_ns for result in results]
        feasible = [float(time_ns) for time_ns in times if time_ns is not None]
        rows.append(Row(name, None, estimate(feasible) if len(feasible) == len(times) else None, evaluations))
    return rows


def _fastest(heuristic: Candidate) -> dict[str, Any]:
    return {"planner": heuristic.planner, "step_time_ns": heuristic.step_time_ns}


def _times(row: Row) -> dict[str, MeanOverSeeds | None]:
    return {"greedy": row.greedy, "best_found": row.best_found}


def _cells(row: Row, bound_ns: int) -> tuple[str, ...]:
    over = terminal.NONE if row.best_found is None else f"{row.best_found.mean / bound_ns:.3f}"
    return (
        row.planner,
        shown(row.greedy),
        shown(row.best_found),
        over,
        terminal.NONE if row.evaluations is None else f"{row.evaluations:,}",
    )
