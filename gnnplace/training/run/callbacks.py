"""Callbacks of a run: SIGINT and SIGTERM stop it after its present update, and stderr shows its progress."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar

from gnnplace.problems import NS_PER_S

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt(Callback):
    """A context that catches the signals, and the callback that makes a trainer stop; `received` is the signal or None.

    What a second signal does is what it did before the run. Lightning's own handling of SIGTERM ends with exit status 0
    and no checkpoint of ours: `fit` has it do without. A signal that this process ignores stays ignored.
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
    """Lightning's bar, with the update's best and mean step time, and the nats of what it imitates.

    It is drawn in place on a terminal; elsewhere it is printed once at the end.
    """

    def __init__(self) -> None:
        super().__init__(leave=True, console_kwargs={"file": sys.stderr})

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        return words({name: float(value) for name, value in trainer.callback_metrics.items()})


def words(metrics: dict[str, float]) -> dict[str, str]:
    """What people read of the last update: times in seconds where it had
    one problem, geometric means where it had several.
    """
    texts = {}
    for key, value in metrics.items():
        name = key.rpartition("/")[2]
        if name in ("best_ns", "mean_ns"):
            texts[name.removesuffix("_ns")] = f"{value / NS_PER_S:.3f} s"
        elif name.endswith("_nats") or name in ("entropy", "best_over_one_device", "over_best_heuristic"):
            texts[name.replace("_", " ")] = f"{value:.3f}"
    return texts
