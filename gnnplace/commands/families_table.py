"""The end of a training on many problems: a row for each family of graphs on stdout, and a file that has every problem."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import Any

from gnnplace.bounds.bounds import lower_bound
from gnnplace.choices import FAMILIES
from gnnplace.corpus import manifest
from gnnplace.formats import atomic
from gnnplace.portfolio.candidates import Candidate
from gnnplace.report import terminal
from gnnplace.training.run.in_folder import TrainingRun
from gnnplace.training.update.metrics import geometric_mean

SYNTHETIC = re.compile(rf"({'|'.join(FAMILIES)})-\d+-seed\d+")
COLUMNS = ("graph", "cluster", "family", "ops", "bound_ns", "one_device_ns", "greedy_ns", "best_ns", "best", "placement")


def rows(run: TrainingRun, found: Sequence[Sequence[Candidate]]) -> list[dict[str, Any]]:
    """A row for each problem: step times in ns, None where there is none or it is infeasible."""
    families = {entry.name: entry.family for entry in manifest.entries()}
    made = []
    for lesson, candidates in zip(run.learner.lessons, found, strict=True):
        problem = lesson.problem
        synthetic = SYNTHETIC.match(name := problem.graph.name)
        family = f"synthetic, {synthetic[1]}" if synthetic else families.get(name, name)
        times = [(each.result.feasible_ns, each.planner) for each in candidates if each.result.feasible_ns is not None]
        best, who = min(times, default=(None, None))
        greedy = next((time for time, planner in times if planner == "policy, greedy"), None)
        path = run.folder.placement(lesson.label)
        numbers = (problem.num_ops, lower_bound(problem), lesson.reference_ns, greedy, best)
        made.append(dict(zip(COLUMNS, (name, problem.cluster.name, family, *numbers, who, path if path.exists() else None), strict=True)))
    return made


def write(run: TrainingRun, made: Sequence[dict[str, Any]]) -> None:
    """The rows as a table for programs, in the run's folder. Raises OSError."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(made)
    atomic.write_text(run.folder.results, text.getvalue())


def print_table(made: Sequence[dict[str, Any]]) -> None:
    """A row for each family and one for all: geometric means over the best single device."""
    families = sorted({row["family"] for row in made})
    parts = [*((family, [row for row in made if row["family"] == family]) for family in families), ("all", list(made))]
    columns = ("family", "problems", "infeasible", "greedy over\none device", "best over\none device", "best over\nbound")
    terminal.print_table(columns, [_line(*part) for part in parts], f"{len(made):,} problems")


def _line(family: str, part: Sequence[dict[str, Any]]) -> list[str]:
    infeasible = sum(row["best_ns"] is None for row in part)
    ratios = (("greedy_ns", "one_device_ns"), ("best_ns", "one_device_ns"), ("best_ns", "bound_ns"))
    return [family, f"{len(part):,}", str(infeasible), *(_mean(part, *ratio) for ratio in ratios)]


def _mean(part: Sequence[dict[str, Any]], time: str, reference: str) -> str:
    ratios = [row[time] / row[reference] for row in part if row[time] and row[reference]]
    return f"{geometric_mean(ratios):.3f}" if ratios else terminal.NONE
