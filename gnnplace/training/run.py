"""A training run from its configuration: problems, policy, teachers, tracking, and the files that it leaves in its folder."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from gnnplace.bounds.bounds import bound_name, lower_bound
from gnnplace.config.run import RunConfig
from gnnplace.execution.evaluator import HEURISTICS, MeasuredEvaluator
from gnnplace.formats import atomic
from gnnplace.formats.placements import Provenance, predicted, read_placement, write_placement
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.report import terminal
from gnnplace.result import Evaluator, StepResult
from gnnplace.simulator.simulator import simulate, usable_cores
from gnnplace.training import description as run_description
from gnnplace.training import problems as run_problems
from gnnplace.training import run_folder
from gnnplace.training.best import BestPlacements, Origin
from gnnplace.training.checkpoint import Checkpoint, load_checkpoint, restore_policy, save_checkpoint
from gnnplace.training.data import Lesson, reference_ns
from gnnplace.training.description import Described
from gnnplace.training.fit import fit
from gnnplace.training.imitation import named_planners, teacher
from gnnplace.training.interrupt import Interrupt
from gnnplace.training.learner import Learner
from gnnplace.training.measured import Compared, compared
from gnnplace.training.mlflow import MlflowRun, Status
from gnnplace.training.progress import ProgressBar
from gnnplace.training.run_folder import RunFolder
from gnnplace.version import VERSION


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """All that a run consists of; `checkpoint` is where it goes on from, None for a new one."""

    config: RunConfig
    folder: RunFolder
    learner: Learner
    description: Mapping[str, Any]
    checkpoint: Checkpoint | None
    bounds_ns: tuple[int, ...]
    tracking: MlflowRun | None
    quiet: bool

    def save(self, learner: Learner) -> None:
        """Writes the checkpoint."""
        save_checkpoint(self.folder.checkpoint, learner, self.description)


def prepare(config: RunConfig, folder: RunFolder, stack: ExitStack, *, resumed: bool, quiet: bool) -> TrainingRun:
    """Everything but the training; leaving `stack` ends the processes that measure.

    Raises ValueError for problems, planners or a checkpoint that don't fit the configuration, MeasurementError where a workload can't run.
    """
    torch.set_num_threads(config.training.threads or usable_cores())
    problems, evaluate = run_problems.opened(config, folder, stack, quiet)
    checkpoint = load_checkpoint(folder.checkpoint) if resumed else None
    if checkpoint is not None:
        run_description.check_problems(checkpoint.description, problems, str(checkpoint.path))
    described = _described(config, problems, checkpoint)
    done = 0 if checkpoint is None else checkpoint.updates_done
    lessons = [_lesson(config, problem, evaluate, done, quiet) for problem in problems]
    bounds = tuple(lower_bound(problem) for problem in problems)
    best = _best(config, folder, lessons, bounds, evaluate)
    description = run_description.document(described, problems)
    learner = Learner(described.policy, lessons, config.training, config.seed, evaluate, best)
    return TrainingRun(config, folder, learner, description, checkpoint, bounds, _tracking(described, folder, description), quiet)


def train(run: TrainingRun) -> int | None:
    """Trains to the end, decodes every problem greedily and saves; or stops after an update, and gives the signal that asked for it."""
    status: Status = "FAILED"
    try:
        with Interrupt() as interrupt:
            done = 0 if run.checkpoint is None else run.checkpoint.updates_done
            bar = [] if run.quiet else [ProgressBar(run.config.training.all_updates, done)]
            fit(run.learner, run.save, checkpoint=run.checkpoint, interrupt=interrupt, callbacks=bar, logger=run.tracking)
            stopped = interrupt.received
            if stopped is None:
                _decode(run)
        status = "FINISHED" if stopped is None else "KILLED"
        return stopped
    finally:
        _end(run, status)


def _decode(run: TrainingRun) -> None:
    for problem in range(len(run.learner.lessons)):
        run.learner.decode(problem)
    run.save(run.learner)
    found = compare(run)
    if not found:
        return
    run.save(run.learner)
    atomic.write_text(run.folder.measured, json.dumps([each.document() for each in found]) + "\n")
    if run.tracking is not None:
        metrics = {key: value for each in found for key, value in each.metrics().items()}
        bests = zip(run.learner.lessons, run.learner.best.found, strict=True)
        metrics |= {f"{lesson.label}/best_ns": float(best.step_time_ns) for lesson, best in bests if best is not None}
        run.tracking.log_metrics(metrics, run.config.training.all_updates)


def compare(run: TrainingRun) -> list[Compared]:
    """What a run that measures came to, one for each problem: the policy's winner is its best from now on. Nothing is measured twice."""
    evaluate, best = run.learner.evaluate, run.learner.best
    if not isinstance(evaluate, MeasuredEvaluator):
        return []
    results = []
    for number, lesson in enumerate(run.learner.lessons):
        found, winner = compared(lesson, best.found[number], evaluate)
        before = best.found[number]
        if winner is not None and before is not None and winner is not before.placement:
            best.settle(number, winner, *evaluate(lesson.problem, [winner]))
        results.append(found)
    return results


def _end(run: TrainingRun, status: Status) -> None:
    if run.tracking is None:
        return
    for path in (run.folder.config, run.folder.checkpoint, run.folder.measured):
        if path.exists():
            run.tracking.artifact(path)
    for lesson in run.learner.lessons:
        if run.folder.placement(lesson.label).exists():
            run.tracking.artifact(run.folder.placement(lesson.label), run_folder.PLACEMENTS)
    run.tracking.end(status)


def _tracking(described: Described, folder: RunFolder, description: Mapping[str, Any]) -> MlflowRun | None:
    if described.config.tracking == "none":
        return None
    return MlflowRun(folder.path, description["config"], run_folder.in_use)


def _described(config: RunConfig, problems: Sequence[Problem], resumed: Checkpoint | None) -> Described:
    """The policy: of the run that is resumed, or with the weights of the checkpoint that `init` names, or with random ones."""
    shape = config.policy.shape(problems)
    start = load_checkpoint(config.init) if config.init is not None and resumed is None else resumed
    if start is None:
        return run_description.described(config, shape)
    trained = run_description.shape_of(start)
    if trained.devices != shape.devices:
        raise ValueError(f"{start.path}: is of a policy for {trained.devices} devices, and the problems have {shape.devices}")
    described = run_description.described(config, trained)
    if resumed is None:
        restore_policy(start, described.policy)
    return described


def _lesson(config: RunConfig, problem: Problem, evaluate: Evaluator, updates_done: int, quiet: bool) -> Lesson:
    imitates, measures = updates_done < config.training.warm_start.updates, isinstance(evaluate, MeasuredEvaluator)
    evaluate = evaluate.of(HEURISTICS) if isinstance(evaluate, MeasuredEvaluator) else evaluate
    reference = reference_ns(problem, evaluate)
    if not (measures or imitates):
        return Lesson(problem, reference)
    terminal.progress(quiet)(f"{problem.graph.name} on {problem.cluster.name}: looking for the best heuristic's placement")
    taught = teacher(problem, named_planners(config, problem), simulate)
    evaluate(problem, [taught])  # a run that measures measures it now: it is one of the candidates
    return Lesson(problem, reference, taught if imitates else None)


def _best(config: RunConfig, folder: RunFolder, lessons: list[Lesson], bounds: tuple[int, ...], evaluate: Evaluator) -> BestPlacements:
    started = time.perf_counter_ns()

    def write(number: int, placement: Placement, result: StepResult, origin: Origin) -> None:
        problem = lessons[number].problem
        provenance = Provenance(
            tool=f"gnnplace {VERSION}",
            planner=f"{config.policy.kind} ({origin})",
            encoder=config.policy.encodes_with,
            seed=config.seed,
            wall_ns=time.perf_counter_ns() - started,
        )
        (step,) = simulate(problem, [placement])
        written = predicted(problem.cluster, step, bounds[number], bound_name(problem))
        write_placement(folder.placement(lessons[number].label), problem.graph, problem.cluster, placement, written, provenance)

    return BestPlacements(len(lessons), write, tuple(_written_ns(folder, lesson, evaluate) for lesson in lessons))


def _written_ns(folder: RunFolder, lesson: Lesson, evaluate: Evaluator) -> int | None:
    """The step time of the best placement that an interrupted run has written, None where there is none."""
    path, problem = folder.placement(lesson.label), lesson.problem
    if not path.exists():
        return None
    (result,) = evaluate(problem, [read_placement(path, problem.graph, problem.cluster)])
    return result.feasible_ns
