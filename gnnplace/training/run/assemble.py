"""A learner and its run under Lightning, assembled from a configuration.

`assembled` puts together policy, lessons and teachers. `fit` runs the learner to its last update or to a signal, with
callbacks: `Saving` writes checkpoints, `Interrupt` stops at SIGINT and SIGTERM after the present update, `Progress`
shows the progress on stderr.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import lightning
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, RichProgressBar
from lightning.pytorch.loggers import Logger

from gnnplace.config.run import RunConfig, SelectionConfig
from gnnplace.formats import strict_json
from gnnplace.placement import Placement
from gnnplace.policies.protocol import Policy
from gnnplace.portfolio import planners
from gnnplace.problems import NS_PER_S, Problem
from gnnplace.result import Evaluator, Planner
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run import description, trainer_flags
from gnnplace.training.run.checkpoint import NAME, SUFFIX, SafetensorsIO
from gnnplace.training.run.description import Described
from gnnplace.training.run.learner import Learner
from gnnplace.training.run.trainer_flags import DEFAULTS, flags
from gnnplace.training.run.zero_shot import ZeroShot, of_policy
from gnnplace.training.update.best import BestPlacements
from gnnplace.training.update.data import Problems, Work
from gnnplace.training.update.learning import Learning
from gnnplace.training.update.lesson import Exam, Lesson, labels, reference_ns
from gnnplace.training.update.rollout import fastest

EXPECTED_WARNINGS = (
    ".*does not have many workers.*",  # the data are numbers
    ".*is zero.*",  # a finished run that is resumed
    ".*LeafSpec.* is deprecated.*",  # between Lightning and torch
    ".*Checkpoint directory .* exists and is not empty.*",  # a run's folder
    ".*barrier.*",  # of gloo, which needs no device
)
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def fit(
    learner: Learner,
    exams: Sequence[Exam] = (),
    *,
    trainer: Mapping[str, Any] = DEFAULTS,
    folder: Path | None = None,
    checkpoint: Path | None = None,
    callbacks: Sequence[Callback] = (),
    logger: Logger | None = None,
) -> Trainer:
    """Trains `learner`, from a checkpoint if given, to its last update, or until a callback stops it.

    Returns the Trainer.

    With a `folder` its checkpoint is written there every `checkpoint_every` updates and at the end. The learner is on
    the CPU afterwards. Raises ValueError for flags of the Trainer that are none, or where the device that they name is
    missing.
    """
    training = learner.learning.training
    saving = [] if folder is None else [Saving(folder, training.checkpoint_every, learner.learning.all_updates)]
    lightning_trainer = _trainer(
        flags(trainer), [*callbacks, *saving], logger, training.validation_every if exams else 0
    )
    with warnings.catch_warnings():
        for expected in EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message=expected)
        lightning_trainer.fit(
            learner, datamodule=Problems(learner.updates(), exams), ckpt_path=checkpoint, weights_only=False
        )
    return lightning_trainer


def _trainer(
    chosen: Mapping[str, Any], callbacks: list[Callback], logger: Logger | None, validation_every: int
) -> Trainer:
    bar = any(isinstance(callback, lightning.pytorch.callbacks.ProgressBar) for callback in callbacks)
    ours: dict[str, Any] = {
        "max_epochs": 1, "logger": logger if logger is not None else False, "callbacks": callbacks,
        "plugins": [SafetensorsIO()],
        "enable_checkpointing": any(isinstance(callback, ModelCheckpoint) for callback in callbacks),
        "enable_progress_bar": bar,
        "use_distributed_sampler": False,
    }  # fmt: skip
    usual = {"log_every_n_steps": 1, "enable_model_summary": False, "num_sanity_val_steps": 0}
    when: dict[str, Any] = (
        {"val_check_interval": validation_every, "check_val_every_n_epoch": None}
        if validation_every
        else {"limit_val_batches": 0}
    )
    trainer = trainer_flags.trainer(usual | when | dict(chosen) | ours)
    # SIGTERM is `Interrupt`'s, or the caller's
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    return trainer


class Saving(ModelCheckpoint):
    """Writes a run's one checkpoint: every `every` updates, after the last one, and when the run is told to stop.

    It writes between updates alone.
    """

    def __init__(self, folder: Path, every: int, last: int) -> None:
        super().__init__(
            dirpath=folder,
            filename=NAME,
            every_n_train_steps=1,
            save_on_train_epoch_end=False,
            enable_version_counter=False,
        )
        self.FILE_EXTENSION = SUFFIX
        self._every, self._last = every, last

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the run knows the path of its checkpoint, and file names in a checkpoint are not trusted."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Ignores what earlier versions saved."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Work, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, Learner)
        if not batch.last:
            trainer.should_stop = False  # an update is whole
            return
        ends = trainer.should_stop or pl_module.updates_done == self._last or trainer.global_step == trainer.max_steps
        if ends or pl_module.updates_done % self._every == 0:
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)


class Interrupt(Callback):
    """A context that catches the signals, and a callback that stops the trainer; `received` is the signal or None.

    A second signal acts as before the run. Lightning's own handling of SIGTERM ends with exit status 0 and no
    checkpoint of ours: `fit` has it do without. A signal that this process ignores stays ignored.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, Callable[..., Any] | int | None] = {}

    def __enter__(self) -> Interrupt:
        self._previous = {
            number: handler for number in SIGNALS if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)
        }
        for number in self._previous:
            signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self._restore()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.should_stop = self.received is not None

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *batch: object) -> None:
        stop = trainer.should_stop or self.received is not None
        # one process's signal stops all of them
        trainer.should_stop = trainer.strategy.reduce_boolean_decision(stop, all=False)


class Progress(RichProgressBar):
    """Lightning's bar, with the update's best and mean step time, and the nats of imitation.

    It is drawn in place on a terminal; elsewhere it is printed once at the end.
    """

    def __init__(self) -> None:
        super().__init__(leave=True, console_kwargs={"file": sys.stderr})

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        return words({name: float(value) for name, value in trainer.callback_metrics.items()})


def words(metrics: dict[str, float]) -> dict[str, str]:
    """The last update for people: times in seconds of one problem, geometric means of several."""
    texts = {}
    for key, value in metrics.items():
        name = key.rpartition("/")[2]
        if name in ("best_ns", "mean_ns"):
            texts[name.removesuffix("_ns")] = f"{value / NS_PER_S:.3f} s"
        elif name.endswith("_nats") or name in ("entropy", "best_over_one_device", "over_best_heuristic"):
            texts[name.replace("_", " ")] = f"{value:.3f}"
    return texts


def assembled(
    config: RunConfig,
    described: Described,
    problems: Sequence[Problem],
    lesson: Callable[[int, str], Lesson],
    best: Callable[[Sequence[Lesson]], BestPlacements],
    evaluate: Evaluator,
) -> Learner:
    """The learner of a configuration before its first update; `lesson` makes the lesson of a number and a label.

    Raises ValueError, before any lesson is made, if the policy can't learn what the configuration asks for.
    """
    learning = Learning(config.training, config.algorithm, config.seed)
    policy = described.policy
    assert isinstance(policy, Policy)
    learning.of(policy)
    lessons = [lesson(number, label) for number, label in enumerate(labels(problems))]
    document = description.document(config, described.shape, problems)
    return Learner(policy, lessons, learning, evaluate, best(lessons), document)


def taught(config: RunConfig, problem: Problem) -> Placement:
    """The fastest feasible placement of the planners that a warm start names, simulated.

    Raises ValueError if none of them finds one.
    """
    placements = [planner(problem) for planner in _teachers(config, problem)]
    placement, result = fastest(list(zip(placements, simulate(problem, placements), strict=True)))
    if result.feasible_ns is None:
        raise ValueError(
            f"warm_start: no planner places {problem.graph.name} on {problem.cluster.name}: {result.infeasible}"
        )
    return placement


def _teachers(config: RunConfig, problem: Problem) -> list[Planner]:
    """The planners that a warm start names; all heuristics, but no searches, if it names none.

    Raises ValueError for a name that is none.
    """
    named = planners.planners(problem, simulate, config.seed, config.policy.proposes)
    for name in config.training.warm_start.planners:
        if name not in named:
            raise ValueError(f"training.warm_start.planners: {strict_json.unknown('planner', name, tuple(named))}")
    names = config.training.warm_start.planners or [name for name in named if name not in planners.SEARCHES]
    return [planner for name, planner in named.items() if name in names]


Teachers = Sequence[Placement | None]


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained policy: a planner of any problem, with the best placements of its training problems."""

    config: RunConfig
    learner: Learner
    trainer: Trainer | None = None

    @property
    def policy(self) -> ZeroShot:
        """The policy as a planner: its greedy placement, by weights alone."""
        return of_policy(self.config.policy, self.learner.policy)

    @property
    def best(self) -> tuple[Placement | None, ...]:
        """The fastest feasible placement of each training problem, None without any."""
        return tuple(None if best is None else best.placement for best in self.learner.best.by_problem)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint, atomically: `zero_shot.planner` reads it.

        Raises ValueError if nothing was trained.
        """
        if self.trainer is None:
            raise ValueError("nothing was trained, so there is no checkpoint")
        self.trainer.save_checkpoint(os.fspath(path))


def untrained(
    config: RunConfig,
    problems: Sequence[Problem],
    teachers: Teachers | None = None,
    evaluate: Evaluator = simulate,
) -> Trained:
    """The learner of a configuration on these problems before its first update.

    `teachers` are the placements that a warm start imitates; by default those of the best planners that the
    configuration names.
    """
    if teachers is not None and len(teachers) != len(problems):
        raise ValueError(
            f"teachers: {len(teachers)} placements of {len(problems)} problems; there is one of each, or None"
        )
    names = tuple((problem.graph.name, problem.cluster.name) for problem in problems)
    config = replace(config, problems=names, corpus=SelectionConfig(), dims=(), costs=())
    described = description.described(config, config.policy.shape(problems))

    def lesson(number: int, label: str) -> Lesson:
        problem, imitates = problems[number], bool(config.training.warm_start.updates)
        teacher = teachers[number] if teachers is not None else taught(config, problem) if imitates else None
        return Lesson(problem, reference_ns(problem, simulate), teacher, label)

    return Trained(config, assembled(config, described, problems, lesson, _unwritten, evaluate))


def _unwritten(lessons: Sequence[Lesson]) -> BestPlacements:
    return BestPlacements(len(lessons), lambda *improvement: None)


def train(
    config: RunConfig,
    problems: Sequence[Problem],
    teachers: Teachers | None = None,
    evaluate: Evaluator = simulate,
    callbacks: Sequence[Callback] = (),
    exams: Sequence[Exam] = (),
) -> Trained:
    """`untrained`, then all updates of the configuration, and a greedy placement of each problem at the end."""
    trained = untrained(config, problems, teachers, evaluate)
    trainer = fit(trained.learner, exams, trainer=config.trainer, callbacks=callbacks)
    for number in range(len(problems)):
        trained.learner.decode(number)
    return replace(trained, trainer=trainer)
