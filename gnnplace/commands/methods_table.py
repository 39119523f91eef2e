"""The results of several runs, over their seeds: of one policy, or of several methods beside searches and the bound.

Means over seeds are geometric, with 95 % intervals: Student's t of the logarithms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gnnplace.bounds.bounds import bound_name, lower_bound
from gnnplace.commands.training_table import Known
from gnnplace.placement import Schedule, rule_of
from gnnplace.portfolio.candidates import Candidate
from gnnplace.problems import Problem
from gnnplace.report import terminal
from gnnplace.report.learning_curves import MeanOverSeeds, estimate
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.evaluations import searches
from gnnplace.training.run.in_folder import TrainingRun
from gnnplace.training.run.notes import OWN

GREEDY, BEST_FOUND = "policy, greedy", "policy, best found"
ROWS: Mapping[str, str] = {"greedy": GREEDY, "best_found": BEST_FOUND}


class Outcome(NamedTuple):
    """The results of one run: feasible step times by problem and row."""

    seed: int
    folder: Path
    rule: Schedule
    times_ns: dict[str, dict[str, int]]
    problems: dict[str, Problem]


class Method(NamedTuple):
    """The runs of a policy, one per seed, and the evaluations of each, None where they were not counted."""

    outcomes: list[Outcome]
    evaluations: int | None


class Row(NamedTuple):
    """The step times of a planner over seeds, None where some seed found nothing feasible."""

    planner: str
    greedy: MeanOverSeeds | None
    best_found: MeanOverSeeds | None
    evaluations: int | None


class ComparedMethods(NamedTuple):
    """The rows of one problem, methods in the order of the command line, then searches; and the best heuristic."""

    problem: Problem
    seeds: list[int]
    rows: list[Row]
    heuristic: Candidate | None


def outcome(run: TrainingRun, rankings: Sequence[Sequence[Candidate]]) -> Outcome:
    """The outcome of a run from the candidates of its problems.

    The name of the policy's best loses its origin, which differs between seeds.
    """
    times = {
        lesson.label: {_name(row.planner): row.step_time_ns for row in rows if row.step_time_ns is not None}
        for lesson, rows in zip(run.learner.lessons, rankings, strict=True)
    }
    problems = {lesson.label: lesson.problem for lesson in run.learner.lessons}
    return Outcome(run.config.seed, run.folder.path, rule_of(run.config.policy.proposes), times, problems)


def _name(planner: str) -> str:
    return BEST_FOUND if planner.startswith(BEST_FOUND) else planner


def seeds_document(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """A JSON object for each problem of one policy's runs."""
    return [
        {
            "problem": label,
            "bound_ns": lower_bound(problem),
            "seeds": [each.seed for each in outcomes],
            "best_baseline": _baseline(outcomes, label),
            **{
                name: None if (step_time := _over_seeds(outcomes, label, row)) is None else step_time._asdict()
                for name, row in ROWS.items()
            },
        }
        for label, problem in outcomes[0].problems.items()
    ]


def print_seeds(outcomes: Sequence[Outcome]) -> None:
    """Prints a table of one policy's runs to stdout, a row for each problem."""
    rows = []
    for label, problem in outcomes[0].problems.items():
        baseline = _baseline(outcomes, label)
        cells = [_shown(_over_seeds(outcomes, label, row)) for row in ROWS.values()]
        against = (
            terminal.NONE if baseline is None else f"{baseline['step_time_ns'] / 1e6:,.3f} ({baseline['planner']})"
        )
        rows.append((label, *cells, against, f"{lower_bound(problem) / 1e6:,.3f}"))
    seeds = ", ".join(str(each.seed) for each in outcomes)
    terminal.print_table(
        ("problem", "greedy\nms", "best found\nms", "best baseline\nms", "bound\nms"), rows, f"seeds {seeds}"
    )
    print_page(outcomes)


def print_page(outcomes: Sequence[Outcome]) -> None:
    """Prints the command that makes a page of the runs."""
    terminal.say(f"a page      gnnplace report {' '.join(str(each.folder) for each in outcomes)} -o trainings.html")


def _baseline(outcomes: Sequence[Outcome], label: str) -> dict[str, Any] | None:
    """The fastest placement of a baseline over all seeds; None in runs of many problems, which compute no baselines."""
    times = [(ns, name) for each in outcomes for name, ns in each.times_ns[label].items() if not name.startswith(OWN)]
    return None if not times else {"planner": min(times)[1], "step_time_ns": min(times)[0]}


def compared(methods: Mapping[str, Method], heuristics: Known, evaluations: int | None) -> dict[str, ComparedMethods]:
    """The methods on every problem, by its label.

    With `evaluations`, problems whose heuristics are known have rows of searches with as many evaluations.
    """
    first = next(iter(methods.values())).outcomes
    tables = {}
    for label, problem in first[0].problems.items():
        rows = [_row(name, method, label) for name, method in methods.items()]
        rows += _searched(problem, first, evaluations) if evaluations is not None and label in heuristics else []
        best_heuristic = next(iter(heuristics.get(label, [])), None)
        tables[label] = ComparedMethods(problem, [each.seed for each in first], rows, best_heuristic)
    return tables


def _row(name: str, method: Method, label: str) -> Row:
    greedy, best = (_over_seeds(method.outcomes, label, row) for row in (GREEDY, BEST_FOUND))
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


def _over_seeds(outcomes: Sequence[Outcome], label: str, row: str) -> MeanOverSeeds | None:
    """The mean step time of a row of one problem; None where some seed has no feasible placement."""
    times = [each.times_ns[label].get(row) for each in outcomes]
    return None if None in times else estimate([float(time_ns) for time_ns in times if time_ns is not None])


def document(tables: Mapping[str, ComparedMethods]) -> list[dict[str, Any]]:
    """A JSON object for each problem."""
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


def _fastest(heuristic: Candidate) -> dict[str, Any]:
    return {"planner": heuristic.planner, "step_time_ns": heuristic.step_time_ns}


def _times(row: Row) -> dict[str, MeanOverSeeds | None]:
    return {"greedy": row.greedy, "best_found": row.best_found}


def print_tables(tables: Mapping[str, ComparedMethods]) -> None:
    """Prints a table for each problem to stdout."""
    for each in tables.values():
        bound_ns = lower_bound(each.problem)
        rows = [_cells(row, bound_ns) for row in each.rows]
        if each.heuristic is not None:
            time_ns = each.heuristic.step_time_ns
            alone = None if time_ns is None else estimate([float(time_ns)])
            rows.append(_cells(Row(f"best heuristic: {each.heuristic.planner}", None, alone, None), bound_ns))
        rows.append((f"lower bound ({bound_name(each.problem)})", "", _shown(estimate([float(bound_ns)])), "1.000", ""))
        seeds = ", ".join(map(str, each.seeds))
        title = (
            f"{each.problem.graph.name} ({each.problem.num_ops:,} ops) on {each.problem.cluster.name}, seeds {seeds}"
        )
        terminal.print_table(("planner", "greedy\nms", "best found\nms", "over the bound", "evaluations"), rows, title)


def _cells(row: Row, bound_ns: int) -> tuple[str, ...]:
    over = terminal.NONE if row.best_found is None else f"{row.best_found.mean / bound_ns:.3f}"
    return (
        row.planner,
        _shown(row.greedy),
        _shown(row.best_found),
        over,
        terminal.NONE if row.evaluations is None else f"{row.evaluations:,}",
    )


def _shown(step_time: MeanOverSeeds | None) -> str:
    """Milliseconds, with the interval where there are several seeds."""
    if step_time is None:
        return terminal.NONE
    interval = f" [{step_time.low / 1e6:,.3f}, {step_time.high / 1e6:,.3f}]" if step_time.seeds > 1 else ""
    return f"{step_time.mean / 1e6:,.3f}{interval}"
