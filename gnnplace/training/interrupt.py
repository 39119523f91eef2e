"""SIGINT and SIGTERM ask a run to stop after its present update; what a second one does is what it did before the run."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from lightning import Callback, LightningModule, Trainer

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt(Callback):
    """A context that catches the signals, and the callback that makes a trainer stop; `received` is the signal or None.

    Lightning's own handling of SIGTERM ends with exit status 0 and no checkpoint of ours: `fit` has it do without. A signal that this
    process ignores stays ignored.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, Callable[..., Any] | int | None] = {}

    def __enter__(self) -> Interrupt:
        self._previous = {number: handler for number in SIGNALS if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)}
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
        trainer.should_stop = trainer.strategy.reduce_boolean_decision(stop, all=False)  # one process's signal stops all of them
