"""The end of a training run: the policy's own placements beside the baselines and the bound, and where the files lie."""

from __future__ import annotations

from typing import Any

from gnnplace.bounds.bounds import bound_name, lower_bound
from gnnplace.commands import candidate_table, families_table
from gnnplace.portfolio import planners
from gnnplace.portfolio.candidates import Candidate, ranked
from gnnplace.portfolio.comparison import Say, candidates
from gnnplace.report import terminal
from gnnplace.result import Planner, known
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run import notes
from gnnplace.training.run.in_folder import TrainingRun, compare
from gnnplace.training.run.mlflow import MlflowRun
from gnnplace.training.run.mlflow_store import database
from gnnplace.training.update.lesson import Lesson
from gnnplace.training.update.rollout import greedy

MOST_TABLES = 4

Known = dict[str, list[Candidate]]  # what heuristics propose, by the label of a problem


def results(run: TrainingRun, heuristics: Known | None = None) -> list[list[Candidate]]:
    """For every problem the policy's greedy placement, the best that it found, and every baseline, fastest feasible first.

    With `heuristics` these are the baselines, and those of a new problem are asked and added. Baselines go to MLflow, too. A run of more
    than `MOST_TABLES` problems asks no baseline (`gnnplace compare --checkpoint` does, for a problem), and has a file with a row for each.
    """
    say, found = candidate_table.news(run.quiet or len(run.learner.lessons) > MOST_TABLES), []
    for number, lesson in enumerate(run.learner.lessons):
        asked: dict[str, Planner] = {"policy, greedy": greedy(run.learner.policy, simulate)}
        best = run.learner.best.found[number]
        if best is not None:
            asked[f"policy, best found ({best.origin})"] = known(best.placement)
        own = candidates(lesson.problem, asked, run.config.policy.proposes, say)
        found.append(ranked([*own, *_baselines(run, lesson, heuristics, say)]))
        if run.tracking is not None and run.config.evaluate == "simulated":
            run.tracking.log_once(notes.baselines(lesson, found[-1]))
    if len(found) > MOST_TABLES:
        families_table.write(run, families_table.rows(run, found))
    return found


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


def print_tables(run: TrainingRun, found: list[list[Candidate]]) -> None:
    """A table for each problem on stdout, or where there are many one of their families; then the files."""
    if len(found) > MOST_TABLES:
        families_table.print_table(families_table.rows(run, found))
        terminal.say(f"each        {run.folder.results}", f"placements  {run.folder.placements}")
    else:
        for lesson, rows in zip(run.learner.lessons, found, strict=True):
            candidate_table.print_table(lesson.problem, rows)
            terminal.say(f"placement   {run.folder.placement(lesson.label)}")
    for each in compare(run):
        terminal.say(f"measured    {each.label}: {each.line()}")
    terminal.say(f"checkpoint  {run.folder.checkpoint}")
    if run.tracking is not None:
        terminal.say(f"MLflow run  {run.tracking.run_id}: mlflow ui --backend-store-uri {database(run.folder.path.parent)}")
        terminal.say(f"its page    {run.tracking.page}")
        if run.tracking.registered is not None:
            terminal.say(f"registered  {run.tracking.registered.name}, version {run.tracking.registered.version}")


def document(run: TrainingRun, found: list[list[Candidate]]) -> dict[str, Any]:
    """The run for programs."""
    problems = zip(run.learner.lessons, found, strict=True)
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
                "bound_ns": lower_bound(lesson.problem),
                "bound": bound_name(lesson.problem),
                "schedule": run.config.policy.proposes,
                "placement": str(run.folder.placement(lesson.label)),
                "planners": [row.row(lesson.problem) for row in rows],
            }
            for lesson, rows in problems
        ],
    }


def _tracked(run: TrainingRun, tracking: MlflowRun) -> dict[str, Any]:
    registered = None if tracking.registered is None else tracking.registered._asdict()
    return {"run": tracking.run_id, "store": database(run.folder.path.parent), "page": tracking.page, "registered": registered}
