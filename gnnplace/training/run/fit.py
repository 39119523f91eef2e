"""One run of a learner under Lightning: from where it stands to its
last update, with checkpoints, or until a signal.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import Logger

from gnnplace.training.run import trainer_flags
from gnnplace.training.run.checkpoint import NAME, SUFFIX, SafetensorsIO
from gnnplace.training.run.learner import Learner
from gnnplace.training.run.trainer_flags import DEFAULTS, flags
from gnnplace.training.update.data import Problems, Work
from gnnplace.training.update.lesson import Exam

EXPECTED_WARNINGS = (
    ".*does not have many workers.*",  # the data are numbers
    ".*is zero.*",  # a finished run that is resumed
    ".*LeafSpec.* is deprecated.*",  # between Lightning and torch
    ".*Checkpoint directory .* exists and is not empty.*",  # a run's folder
    ".*barrier.*",  # of gloo, which needs no device
)


class Saving(ModelCheckpoint):
    """Writes a run's one checkpoint every `every` updates, after the last
    one, and when it is asked to stop; between updates alone.
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
        """Nothing: where the one checkpoint lies, the run knows, and
        names of files in a checkpoint are not to be trusted.
        """
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes nothing of what earlier versions saved."""

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
    """Trains `learner` from a checkpoint, or from the start, to its last update, or until a callback stops it; returns
    the Trainer.

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
    given: Mapping[str, Any], callbacks: list[Callback], logger: Logger | None, validation_every: int
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
    trainer = trainer_flags.trainer(usual | when | dict(given) | ours)
    # SIGTERM is `Interrupt`'s, or the caller's
    trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
    return trainer
