"""One run of a learner under Lightning: from where it stands to its last update, with checkpoints, or until a signal."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from typing import assert_never

import lightning
import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import Logger
from torch.utils.data import DataLoader

from gnnplace.config.training import TrainingDevice
from gnnplace.training.checkpoint import Checkpoint, restore
from gnnplace.training.data import Updates
from gnnplace.training.interrupt import Interrupt
from gnnplace.training.learner import Learner

EXPECTED_WARNINGS = (
    ".*does not have many workers.*",  # the data are numbers
    "Total length of .* is zero.*",  # a finished run that is resumed
    ".*LeafSpec.* is deprecated.*",  # between Lightning and torch
)


class _Saving(Callback):
    """Restores a learner before its first update; saves it every `every` updates and at the end, interrupted or not."""

    def __init__(self, save: Callable[[Learner], None], every: int, checkpoint: Checkpoint | None) -> None:
        self._save, self._every, self._checkpoint = save, every, checkpoint

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Learner)
        if self._checkpoint is not None:
            restore(self._checkpoint, pl_module)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *batch: object) -> None:
        assert isinstance(pl_module, Learner)
        if pl_module.updates_done % self._every == 0:
            self._save(pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Learner)
        self._save(pl_module)


def fit(
    learner: Learner,
    save: Callable[[Learner], None],
    *,
    checkpoint: Checkpoint | None = None,
    interrupt: Interrupt | None = None,
    callbacks: Sequence[Callback] = (),
    logger: Logger | None = None,
) -> None:
    """Trains `learner` from the checkpoint, or from the start, to its last update, or until `interrupt` received a signal.

    `save` is called every `checkpoint_every` updates and at the end, after which the learner is on the CPU again.
    Raises ValueError for a checkpoint that doesn't fit, or where the configuration's device is missing.
    """
    config, first = learner.config, 0 if checkpoint is None else checkpoint.updates_done
    updates = Updates(len(learner.lessons), config.problems_per_update, learner.seed, first, config.all_updates)
    saving = _Saving(save, config.checkpoint_every, checkpoint)
    trainer = _trainer(config.device, [saving, *([interrupt] if interrupt else []), *callbacks], logger)
    with warnings.catch_warnings():
        for expected in EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message=expected)
        trainer.fit(learner, DataLoader(updates, batch_size=None, collate_fn=tuple))


def accelerator(device: TrainingDevice) -> str:
    """Lightning's name of a device. Raises ValueError where PyTorch finds no such device."""
    match device:
        case "cpu":
            return "cpu"
        case "gpu":
            if not torch.cuda.is_available():
                raise ValueError("training.device: 'gpu', and PyTorch finds no CUDA device here")
            return "cuda"
        case _:
            assert_never(device)


def _trainer(device: TrainingDevice, callbacks: list[Callback], logger: Logger | None) -> Trainer:
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    return lightning.Trainer(
        accelerator=accelerator(device),
        devices=1,
        max_epochs=1,
        logger=logger if logger is not None else False,
        callbacks=callbacks,
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
