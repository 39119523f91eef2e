"""Progress of a run on stderr: updates, best and mean step time, entropy, time left."""

from __future__ import annotations

import sys

from lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gnnplace.problems import NS_PER_S
from gnnplace.training.learner import Learner


class ProgressBar(Callback):
    """A bar of `updates`, of which `done` were done before; on a terminal it is drawn in place, else printed once at the end."""

    def __init__(self, updates: int, done: int) -> None:
        console = Console(file=sys.stderr)
        figures = TextColumn("{task.fields[figures]}")
        self._progress = Progress(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), figures, console=console)
        self._task = self._progress.add_task("update", total=updates, completed=done, figures="")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._progress.start()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *batch: object) -> None:
        assert isinstance(pl_module, Learner)
        self._progress.update(self._task, advance=1, figures=figures(pl_module.metrics))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._progress.stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._progress.stop()


def figures(metrics: dict[str, float]) -> str:
    """The last update's figures in words, those of several problems one after another."""
    words = []
    for key, value in metrics.items():
        name = key.rpartition("/")[2]
        if name in ("best_ns", "mean_ns"):
            words.append(f"{name.removesuffix('_ns')} {value / NS_PER_S:.3f} s")
        elif name in ("entropy", "imitation_nats"):
            words.append(f"{name.replace('_', ' ')} {value:.3f}")
    return "  ".join(words)
