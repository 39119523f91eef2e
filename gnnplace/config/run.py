"""Everything a training run can be told: a tree of frozen dataclasses, each knob with its unit, default and check.

A bad value is a ValueError that names the value, the rule and the knob. Two complete runs are configs/paper.yaml and configs/gnn.yaml.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gnnplace.config.checks import at_least
from gnnplace.config.policies import PolicyConfig
from gnnplace.config.training import TrainingConfig

TrackingName = Literal["mlflow", "none"]


@dataclass(frozen=True)
class RunConfig:
    """One training run.

    Args:
        policy: the policy's own knobs
        name: the run's folder under `runs` starts with it
        seed: of initial weights, samples and the order of problems, at least 0
        problems: pairs of a graph (corpus name or file) and a cluster (preset or file)
        training: the policy gradient and its loop
        runs: the folder of run folders and of the tracking database
        tracking: "mlflow" (SQLite and files under `runs`) or "none"
    """

    policy: PolicyConfig
    name: str = "run"
    seed: int = 0
    problems: tuple[tuple[str, str], ...] = (("nmt-2", "k40-2"),)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    runs: str = "runs"
    tracking: TrackingName = "mlflow"

    def __post_init__(self) -> None:
        at_least(0, "", seed=self.seed)
        if not self.name or not all(c.isalnum() or c in "._-" for c in self.name):
            raise ValueError(f"name: {self.name!r} names a folder: letters, digits, '.', '_' and '-' alone")
        if not self.problems:
            raise ValueError("problems: a run needs at least one")
