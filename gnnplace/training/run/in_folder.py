"""A training run in its folder, from a configuration: problems, policy, teachers, tracking, and files."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import torch
from lightning import Trainer

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
from gnnplace.training.run import description as run_description
from gnnplace.training.run import folder as run_folder
from gnnplace.training.run import mlflow_store, notes
from gnnplace.training.run import problems as run_problems
from gnnplace.training.run.assemble import Interrupt, Progress, assembled, fit, taught
from gnnplace.training.run.checkpoint import policy_of, restore_policy
from gnnplace.training.run.description import Described
from gnnplace.training.run.folder import RunFolder
from gnnplace.training.run.learner import Learner
from gnnplace.training.run.measured import Compared, compared
from gnnplace.training.run.mlflow import MlflowRun, Status
from gnnplace.training.run.selection import exams, selected
from gnnplace.training.update import processes
from gnnplace.training.update.best import BestPlacements, Origin
from gnnplace.training.update.lesson import Exam, Lesson, reference_ns
from gnnplace.version import VERSION

MANY = 20  # with more problems stderr names none of them


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """The parts of a run; `resumed` is True if it continues from the checkpoint in its folder."""

    config: RunConfig
    folder: RunFolder
    learner: Learner
    exams: tuple[Exam, ...]
    resumed: bool
    tracking: MlflowRun | None
    quiet: bool


def prepare(config: RunConfig, folder: RunFolder, stack: ExitStack, *, resumed: bool, quiet: bool) -> TrainingRun:
    """Prepares a run without training it; leaving `stack` ends the processes that measure.

    Raises ValueError for problems, planners or a checkpoint that don't fit the configuration, MeasurementError where a
    workload can't run.
    """
    torch.set_num_threads(config.training.threads or usable_cores())
    if config.tracking == "mlflow":
        mlflow_store.check(folder.path.parent)
    problems, evaluate = run_problems.opened(config, folder, stack, quiet)
    start = policy_of(folder.checkpoint) if resumed else None
    if start is not None:
        run_description.check_problems(start, problems)
    described = _described(config, problems, resumed=start is not None)
    if start is not None:
        restore_policy(start, described.policy)
    each_quiet = quiet or len(problems) > MANY
    imitates = bool(config.training.warm_start.updates) and (
        start is None or start.updates_done < config.training.grouping.updates + config.training.warm_start.updates
    )
    learner = assembled(
        config, described, problems,
        lambda number, label: _lesson(config, problems[number], label, evaluate, imitates, each_quiet),
        lambda lessons: _best(config, folder, lessons, evaluate), evaluate,
    )  # fmt: skip
    held_out = selected(config.validation, config.seed, config.parallelism) if config.validation.splits else ()
    exam = exams(held_out, folder.exams, terminal.progress(quiet or len(held_out) > MANY)) if held_out else ()
    return TrainingRun(config, folder, learner, exam, resumed, _tracking(config, folder, learner), quiet)


def train(run: TrainingRun) -> int | None:
    """Trains to the end, decodes every problem greedily and saves; returns None.

    A signal stops the run after an update, and is returned.
    """
    try:
        with Interrupt() as interrupt:
            trainer = fit(
                run.learner, run.exams, trainer=run.config.trainer, folder=run.folder.path,
                checkpoint=run.folder.checkpoint if run.resumed else None,
                callbacks=[interrupt, *([] if run.quiet else [Progress()])], logger=run.tracking,
            )  # fmt: skip
        stopped = interrupt.received
        if stopped is None:
            _decode(run, trainer)
            _register(run)
    except BaseException:
        with suppress(OSError):  # the first failure is reported
            _end(run, "FAILED")
        raise
    _end(run, "FINISHED" if stopped is None else "KILLED")
    return stopped


def _decode(run: TrainingRun, trainer: Trainer) -> None:
    for problem in range(len(run.learner.lessons)):
        run.learner.decode(problem)
    trainer.save_checkpoint(run.folder.checkpoint)
    comparisons = compare(run)
    if not comparisons:
        return
    trainer.save_checkpoint(run.folder.checkpoint)
    atomic.write_text(run.folder.measured, json.dumps([comparison.document() for comparison in comparisons]) + "\n")
    if run.tracking is not None:
        metrics = {key: value for comparison in comparisons for key, value in comparison.metrics().items()}
        bests = zip(run.learner.lessons, run.learner.best.by_problem, strict=True)
        metrics |= {f"{lesson.label}/best_ns": float(best.step_time_ns) for lesson, best in bests if best is not None}
        run.tracking.log_metrics(metrics, run.learner.learning.all_updates)


def _register(run: TrainingRun) -> None:
    if run.tracking is not None and run.config.register is not None:
        run.tracking.register(run.folder.checkpoint, run.config.register, run.learner.lessons[0].problem.cluster)


def compare(run: TrainingRun) -> list[Compared]:
    """The comparisons of a run that measures, one for each problem; the policy's winner becomes its best.

    Nothing is measured twice.
    """
    evaluate, best = run.learner.evaluate, run.learner.best
    if not isinstance(evaluate, MeasuredEvaluator):
        return []
    results = []
    for number, lesson in enumerate(run.learner.lessons):
        comparison, winner = compared(lesson, best.by_problem[number], evaluate)
        before = best.by_problem[number]
        if winner is not None and before is not None and winner is not before.placement:
            best.settle(number, winner, *evaluate(lesson.problem, [winner]))
        results.append(comparison)
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


def _tracking(config: RunConfig, folder: RunFolder, learner: Learner) -> MlflowRun | None:
    if config.tracking == "none":
        return None
    tags = notes.tags(config, folder.path, learner.lessons, learner.learning.phases)
    return MlflowRun(folder.path, learner.description["config"], run_folder.in_use, tags)


def _described(config: RunConfig, problems: Sequence[Problem], *, resumed: bool) -> Described:
    """The policy with random weights, or with the weights of the checkpoint `init`."""
    shape = config.policy.shape(problems)
    if config.init is None:
        return run_description.described(config, shape)
    start = policy_of(config.init)
    trained = run_description.shape_of(start)
    if trained.devices != shape.devices:
        raise ValueError(
            f"{start.path}: is of a policy for {trained.devices} devices, and the problems have {shape.devices}"
        )
    described = run_description.described(config, trained)
    if not resumed:
        restore_policy(start, described.policy)
    return described


def _lesson(
    config: RunConfig, problem: Problem, label: str, evaluate: Evaluator, imitates: bool, quiet: bool
) -> Lesson:
    measures = isinstance(evaluate, MeasuredEvaluator)
    evaluate = evaluate.of(HEURISTICS) if isinstance(evaluate, MeasuredEvaluator) else evaluate
    reference = reference_ns(problem, evaluate)
    if not (measures or imitates):
        return Lesson(problem, reference, label=label)
    terminal.progress(quiet)(
        f"{problem.graph.name} on {problem.cluster.name}: looking for the best heuristic's placement"
    )
    placement = taught(config, problem)
    evaluate(problem, [placement])  # a run that measures measures it now: it is one of the candidates
    return Lesson(problem, reference, placement if imitates else None, label)


def _best(config: RunConfig, folder: RunFolder, lessons: Sequence[Lesson], evaluate: Evaluator) -> BestPlacements:
    started = time.perf_counter_ns()

    def write(number: int, placement: Placement, result: StepResult, origin: Origin) -> None:
        if processes.rank() > 0:
            return
        problem = lessons[number].problem
        provenance = Provenance(
            tool=f"gnnplace {VERSION}",
            planner=f"{config.policy.kind} ({origin})",
            encoder=config.policy.encodes_with,
            seed=config.seed,
            wall_ns=time.perf_counter_ns() - started,
        )
        (step,) = simulate(problem, [placement])
        fused = placement.fusion is not None
        bound_ns, bound = lower_bound(problem, fused), bound_name(problem, fused)
        written = predicted(problem.cluster, step, bound_ns, bound, problem.graph.micro_batches)
        write_placement(
            folder.placement(lessons[number].label), problem.graph, problem.cluster, placement, written, provenance
        )

    return BestPlacements(len(lessons), write, tuple(_written_ns(folder, lesson, evaluate) for lesson in lessons))


def _written_ns(folder: RunFolder, lesson: Lesson, evaluate: Evaluator) -> int | None:
    """The step time of the best placement that an interrupted run has written, None without one."""
    path, problem = folder.placement(lesson.label), lesson.problem
    if not path.exists():
        return None
    (result,) = evaluate(problem, [read_placement(path, problem.graph, problem.cluster)])
    return result.feasible_ns
