"""Progress of a run on stderr: Lightning's bar, with the update's best and mean step time, and the nats of what it imitates."""

from __future__ import annotations

import sys
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar

from gnnplace.problems import NS_PER_S


class Progress(RichProgressBar):
    """Drawn in place on a terminal; elsewhere it is printed once at the end."""

    def __init__(self) -> None:
        super().__init__(leave=True, console_kwargs={"file": sys.stderr})

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        return words({name: float(value) for name, value in trainer.callback_metrics.items()})


def words(metrics: dict[str, float]) -> dict[str, str]:
    """What people read of the last update: times in seconds where it had one problem, geometric means where it had several."""
    found = {}
    for key, value in metrics.items():
        name = key.rpartition("/")[2]
        if name in ("best_ns", "mean_ns"):
            found[name.removesuffix("_ns")] = f"{value / NS_PER_S:.3f} s"
        elif name.endswith("_nats") or name in ("entropy", "best_over_one_device", "over_best_heuristic"):
            found[name.replace("_", " ")] = f"{value:.3f}"
    return found
