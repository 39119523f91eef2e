"""The results of a training run: the policy's placements beside the baselines and the bound, and its files.

A run of few problems prints a table for each. A run of many prints a row for each family of graphs and writes a file
with a row for each problem.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import Any

from gnnplace.bounds.bounds import lower_bound
from gnnplace.choices import FAMILIES
from gnnplace.commands import candidate_table
from gnnplace.corpus import manifest
from gnnplace.formats import atomic
from gnnplace.portfolio import planners
from gnnplace.portfolio.candidates import Candidate, bound_of_all, ranked
from gnnplace.portfolio.comparison import Say, candidates
from gnnplace.report import terminal
from gnnplace.result import Planner, known
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run import notes
from gnnplace.training.run.in_folder import TrainingRun, compare
from gnnplace.training.run.mlflow import MlflowRun
from gnnplace.training.run.mlflow_store import database
from gnnplace.training.update.lesson import Lesson
from gnnplace.training.update.metrics import geometric_mean
from gnnplace.training.update.rollout import greedy

MOST_TABLES = 4
SYNTHETIC = re.compile(rf"({'|'.join(FAMILIES)})-\d+-seed\d+")
COLUMNS = (
    "graph",
    "cluster",
    "family",
    "ops",
    "bound_ns",
    "one_device_ns",
    "greedy_ns",
    "best_ns",
    "best",
    "placement",
)

Known = dict[str, list[Candidate]]  # the candidates of heuristics, by the label of a problem


def results(run: TrainingRun, heuristics: Known | None = None) -> list[list[Candidate]]:
    """The candidates of every problem, fastest feasible first: the policy's greedy placement, its best, all baselines.

    With `heuristics` the baselines are taken from there; those of a new problem are computed and added. Baselines are
    logged in MLflow, too. With more than `MOST_TABLES` problems no baselines are computed (`gnnplace compare
    --checkpoint` computes them for one problem), and a file gets a row for each problem.
    """
    say, rankings = candidate_table.news(run.quiet or len(run.learner.lessons) > MOST_TABLES), []
    for number, lesson in enumerate(run.learner.lessons):
        policy_planners: dict[str, Planner] = {"policy, greedy": greedy(run.learner.policy, simulate)}
        best = run.learner.best.by_problem[number]
        if best is not None:
            policy_planners[f"policy, best found ({best.origin})"] = known(best.placement)
        policy_rows = candidates(lesson.problem, policy_planners, run.config.policy.proposes, say)
        rankings.append(ranked([*policy_rows, *_baselines(run, lesson, heuristics, say)]))
        if run.tracking is not None and run.config.evaluate == "simulated":
            run.tracking.log_once(notes.baselines(lesson, rankings[-1]))
    if len(rankings) > MOST_TABLES:
        _write(run, _rows(run, rankings))
    return rankings


def _baselines(run: TrainingRun, lesson: Lesson, heuristics: Known | None, say: Say) -> list[Candidate]:
    if len(run.learner.lessons) > MOST_TABLES:
        return []
    if heuristics is not None and lesson.label in heuristics:
        return heuristics[lesson.label]
    named = planners.planners(lesson.problem, simulate, run.config.seed, run.config.policy.proposes)
    if heuristics is None:
        return candidates(lesson.problem, named, run.config.policy.proposes, say)
    plain = {name: plan for name, plan in named.items() if name not in planners.SEARCHES}
    heuristics[lesson.label] = candidates(lesson.problem, plain, run.config.policy.proposes, say)
    return heuristics[lesson.label]


def print_tables(run: TrainingRun, rankings: list[list[Candidate]]) -> None:
    """Prints a table for each problem, or of many problems one of their families; then the files of the run."""
    if len(rankings) > MOST_TABLES:
        _print_families(_rows(run, rankings))
        terminal.say(f"each        {run.folder.results}", f"placements  {run.folder.placements}")
    else:
        for lesson, rows in zip(run.learner.lessons, rankings, strict=True):
            candidate_table.print_table(lesson.problem, rows)
            terminal.say(f"placement   {run.folder.placement(lesson.label)}")
    for each in compare(run):
        terminal.say(f"measured    {each.label}: {each.line()}")
    terminal.say(f"checkpoint  {run.folder.checkpoint}")
    if run.tracking is not None:
        terminal.say(
            f"MLflow run  {run.tracking.run_id}: mlflow ui --backend-store-uri {database(run.folder.path.parent)}"
        )
        terminal.say(f"its page    {run.tracking.page}")
        if run.tracking.registered is not None:
            terminal.say(f"registered  {run.tracking.registered.name}, version {run.tracking.registered.version}")


def document(run: TrainingRun, rankings: list[list[Candidate]]) -> dict[str, Any]:
    """The results as a JSON object."""
    problems = zip(run.learner.lessons, rankings, strict=True)
    return {
        "run": str(run.folder.path),
        "checkpoint": str(run.folder.checkpoint),
        "mlflow": None if run.tracking is None else _tracked(run, run.tracking),
        "measured": [each.document() for each in compare(run)],
        "problems": [
            {
                "graph": lesson.problem.graph.name,
                "cluster": lesson.problem.cluster.name,
                "ops": lesson.problem.num_ops,
                **dict(zip(("bound_ns", "bound"), bound_of_all(lesson.problem), strict=True)),
                "schedule": run.config.policy.proposes,
                "placement": str(run.folder.placement(lesson.label)),
                "planners": [row.row(lesson.problem) for row in rows],
            }
            for lesson, rows in problems
        ],
    }


def _tracked(run: TrainingRun, tracking: MlflowRun) -> dict[str, Any]:
    registered = None if tracking.registered is None else tracking.registered._asdict()
    return {
        "run": tracking.run_id,
        "store": database(run.folder.path.parent),
        "page": tracking.page,
        "registered": registered,
    }


def _rows(run: TrainingRun, rankings: Sequence[Sequence[Candidate]]) -> list[dict[str, Any]]:
    """A row for each problem, with step times in ns; the time of an infeasible or missing placement is None."""
    families = {entry.name: entry.family for entry in manifest.entries()}
    rows = []
    for lesson, proposed in zip(run.learner.lessons, rankings, strict=True):
        problem = lesson.problem
        synthetic = SYNTHETIC.match(name := problem.graph.name)
        family = f"synthetic, {synthetic[1]}" if synthetic else families.get(name, name)
        times = [(each.result.feasible_ns, each.planner) for each in proposed if each.result.feasible_ns is not None]
        best, planner_of_best = min(times, default=(None, None))
        greedy = next((time for time, planner in times if planner == "policy, greedy"), None)
        path = run.folder.placement(lesson.label)
        numbers = (problem.num_ops, lower_bound(problem), lesson.reference_ns, greedy, best)
        placement = path if path.exists() else None
        cells = (name, problem.cluster.name, family, *numbers, planner_of_best, placement)
        rows.append(dict(zip(COLUMNS, cells, strict=True)))
    return rows


def _write(run: TrainingRun, rows: Sequence[dict[str, Any]]) -> None:
    """Writes the rows as CSV to the run's folder. Raises OSError."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    atomic.write_text(run.folder.results, text.getvalue())


def _print_families(rows: Sequence[dict[str, Any]]) -> None:
    """Prints a row for each family and one for all: geometric means over the best single device and the bound."""
    families = sorted({row["family"] for row in rows})
    parts = [*((family, [row for row in rows if row["family"] == family]) for family in families), ("all", list(rows))]
    columns = (
        "family",
        "problems",
        "infeasible",
        "greedy over\none device",
        "best over\none device",
        "best over\nbound",
    )
    terminal.print_table(columns, [_line(*part) for part in parts], f"{len(rows):,} problems")


def _line(family: str, part: Sequence[dict[str, Any]]) -> list[str]:
    infeasible = sum(row["best_ns"] is None for row in part)
    ratios = (("greedy_ns", "one_device_ns"), ("best_ns", "one_device_ns"), ("best_ns", "bound_ns"))
    return [family, f"{len(part):,}", str(infeasible), *(_mean(part, *ratio) for ratio in ratios)]


def _mean(part: Sequence[dict[str, Any]], time: str, reference: str) -> str:
    ratios = [row[time] / row[reference] for row in part if row[time] and row[reference]]
    return f"{geometric_mean(ratios):.3f}" if ratios else terminal.NONE
