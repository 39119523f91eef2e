"""The end of a training with several seeds: what the policy's placements take over all of them, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gnnplace.bounds.bounds import lower_bound
from gnnplace.candidates import Candidate
from gnnplace.report import terminal
from gnnplace.report.learning_curves import Estimate, estimate
from gnnplace.training.run import TrainingRun

OWN = "policy, "  # how rows of the policy begin
GREEDY, BEST_FOUND = "policy, greedy", "policy, best found"


class Outcome(NamedTuple):
    """What one seed led to: step times by problem and row; those of the policy's best have no origin in their names."""

    seed: int
    folder: Path
    times_ns: dict[str, dict[str, int]]
    bound_ns: dict[str, int]


def outcome(run: TrainingRun, found: Sequence[Sequence[Candidate]]) -> Outcome:
    """Keeps of a run's candidates the feasible step times."""
    times = {
        lesson.label: {_name(row.planner): row.step_time_ns for row in rows if row.step_time_ns is not None}
        for lesson, rows in zip(run.learner.lessons, found, strict=True)
    }
    return Outcome(run.config.seed, run.folder.path, times, {each.label: lower_bound(each.problem) for each in run.learner.lessons})


def document(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """A row for each problem, for programs."""
    return [
        {
            "problem": label,
            "bound_ns": bound_ns,
            "seeds": [each.seed for each in outcomes],
            "best_baseline": _baseline(outcomes, label),
            **{name: None if (found := _over_seeds(outcomes, label, row)) is None else found._asdict() for name, row in ROWS.items()},
        }
        for label, bound_ns in outcomes[0].bound_ns.items()
    ]


def print_table(outcomes: Sequence[Outcome]) -> None:
    """A row for each problem, on stdout: geometric means over seeds and 95 % intervals (Student's t of the logarithms)."""
    rows = []
    for label, bound_ns in outcomes[0].bound_ns.items():
        baseline = _baseline(outcomes, label)
        shown = [_shown(_over_seeds(outcomes, label, row)) for row in ROWS.values()]
        against = terminal.NONE if baseline is None else f"{baseline['step_time_ns'] / 1e6:,.3f} ({baseline['planner']})"
        rows.append((label, *shown, against, f"{bound_ns / 1e6:,.3f}"))
    seeds = ", ".join(str(each.seed) for each in outcomes)
    terminal.print_table(("problem", "greedy\nms", "best found\nms", "best baseline\nms", "bound\nms"), rows, f"seeds {seeds}")
    terminal.say(f"a page      gnnplace report {' '.join(str(each.folder) for each in outcomes)} -o trainings.html")


ROWS: Mapping[str, str] = {"greedy": GREEDY, "best_found": BEST_FOUND}


def _name(planner: str) -> str:
    return BEST_FOUND if planner.startswith(BEST_FOUND) else planner


def _over_seeds(outcomes: Sequence[Outcome], label: str, row: str) -> Estimate | None:
    """None where some seed has no feasible placement."""
    times = [each.times_ns[label].get(row) for each in outcomes]
    return None if None in times else estimate([float(time_ns) for time_ns in times if time_ns is not None])


def _baseline(outcomes: Sequence[Outcome], label: str) -> dict[str, Any] | None:
    """The fastest placement of a baseline, of whatever seed; None where no baseline was asked, as of many problems."""
    times = [(ns, name) for each in outcomes for name, ns in each.times_ns[label].items() if not name.startswith(OWN)]
    return None if not times else {"planner": min(times)[1], "step_time_ns": min(times)[0]}


def _shown(found: Estimate | None) -> str:
    if found is None:
        return terminal.NONE
    interval = f" [{found.low / 1e6:,.3f}, {found.high / 1e6:,.3f}]" if found.seeds > 1 else ""
    return f"{found.mean / 1e6:,.3f}{interval}"
