"""The end of a training with several seeds: what the policy's placements take over all of them, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gnnplace.bounds.bounds import lower_bound
from gnnplace.placement import Schedule, rule_of
from gnnplace.portfolio.candidates import Candidate
from gnnplace.problems import Problem
from gnnplace.report import terminal
from gnnplace.report.learning_curves import MeanOverSeeds, estimate
from gnnplace.training.run.in_folder import TrainingRun
from gnnplace.training.run.notes import OWN

GREEDY, BEST_FOUND = "policy, greedy", "policy, best found"


class Outcome(NamedTuple):
    """What one run led to: step times by problem and row; those of the policy's best have no origin in their names."""

    seed: int
    folder: Path
    rule: Schedule
    times_ns: dict[str, dict[str, int]]
    problems: dict[str, Problem]


def outcome(run: TrainingRun, rankings: Sequence[Sequence[Candidate]]) -> Outcome:
    """Keeps of a run's candidates the feasible step times."""
    times = {
        lesson.label: {_name(row.planner): row.step_time_ns for row in rows if row.step_time_ns is not None}
        for lesson, rows in zip(run.learner.lessons, rankings, strict=True)
    }
    problems = {lesson.label: lesson.problem for lesson in run.learner.lessons}
    return Outcome(run.config.seed, run.folder.path, rule_of(run.config.policy.proposes), times, problems)


def document(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """A row for each problem, for programs."""
    return [
        {
            "problem": label,
            "bound_ns": lower_bound(problem),
            "seeds": [each.seed for each in outcomes],
            "best_baseline": _baseline(outcomes, label),
            **{
                name: None if (step_time := over_seeds(outcomes, label, row)) is None else step_time._asdict()
                for name, row in ROWS.items()
            },
        }
        for label, problem in outcomes[0].problems.items()
    ]


def print_table(outcomes: Sequence[Outcome]) -> None:
    """A row for each problem, on stdout: geometric means over seeds and
    95 % intervals (Student's t of the logarithms).
    """
    rows = []
    for label, problem in outcomes[0].problems.items():
        baseline = _baseline(outcomes, label)
        cells = [shown(over_seeds(outcomes, label, row)) for row in ROWS.values()]
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
    """The command that makes a page of the runs."""
    terminal.say(f"a page      gnnplace report {' '.join(str(each.folder) for each in outcomes)} -o trainings.html")


ROWS: Mapping[str, str] = {"greedy": GREEDY, "best_found": BEST_FOUND}


def _name(planner: str) -> str:
    return BEST_FOUND if planner.startswith(BEST_FOUND) else planner


def over_seeds(outcomes: Sequence[Outcome], label: str, row: str) -> MeanOverSeeds | None:
    """The step time of a row of one problem over seeds; None where some seed has no feasible placement."""
    times = [each.times_ns[label].get(row) for each in outcomes]
    return None if None in times else estimate([float(time_ns) for time_ns in times if time_ns is not None])


def _baseline(outcomes: Sequence[Outcome], label: str) -> dict[str, Any] | None:
    """The fastest placement of a baseline, of whatever seed; None where no baseline was asked, as of many problems."""
    times = [(ns, name) for each in outcomes for name, ns in each.times_ns[label].items() if not name.startswith(OWN)]
    return None if not times else {"planner": min(times)[1], "step_time_ns": min(times)[0]}


def shown(step_time: MeanOverSeeds | None) -> str:
    """Milliseconds, with the interval where there are several seeds."""
    if step_time is None:
        return terminal.NONE
    interval = f" [{step_time.low / 1e6:,.3f}, {step_time.high / 1e6:,.3f}]" if step_time.seeds > 1 else ""
    return f"{step_time.mean / 1e6:,.3f}{interval}"
