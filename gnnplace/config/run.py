"""Everything a training run can be told: a tree of frozen dataclasses, each knob with its unit, default and check.

A bad value is a ValueError that names the value, the rule and the knob. Two complete runs are configs/paper.yaml and configs/gnn.yaml.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gnnplace.config.measured import MeasuredConfig
from gnnplace.config.training import TrainingConfig
from gnnplace.knobs import at_least
from gnnplace.policies.protocol import PolicyConfig

TrackingName = Literal["mlflow", "none"]
EvaluateName = Literal["simulated", "measured"]


@dataclass(frozen=True)
class RunConfig:
    """One training run.

    Args:
        policy: the policy's own knobs
        name: the run's folder under `runs` starts with it
        seed: of initial weights, samples and the order of problems, at least 0
        problems: pairs of a graph (corpus name, file, or a workload: FILE.py:FUNCTION) and a cluster (preset or file)
        dims: sizes of dimensions that ONNX files among the graphs only name, pairs of a name (FILE:NAME for one file alone) and a size
        costs: measured costs (files of `gnnplace profile`) of the problems, one each; empty = roofline costs
        evaluate: what a placement is worth to the policy: its "simulated" step, or the "measured" one of its workload on this machine
        measured: how steps are measured, with evaluate "measured"
        init: a checkpoint whose policy's weights training starts from; null = random ones
        training: the policy gradient and its loop
        runs: the folder of run folders and of the tracking database
        tracking: "mlflow" (SQLite and files under `runs`) or "none"
    """

    policy: PolicyConfig
    name: str = "run"
    seed: int = 0
    problems: tuple[tuple[str, str], ...] = (("nmt-2", "k40-2"),)
    dims: tuple[tuple[str, int], ...] = ()
    costs: tuple[str, ...] = ()
    evaluate: EvaluateName = "simulated"
    measured: MeasuredConfig = field(default_factory=MeasuredConfig)
    init: str | None = None
    training: TrainingConfig = field(default_factory=TrainingConfig)
    runs: str = "runs"
    tracking: TrackingName = "mlflow"

    def __post_init__(self) -> None:
        at_least(0, "", seed=self.seed)
        if not self.name or not all(c.isalnum() or c in "._-" for c in self.name):
            raise ValueError(f"name: {self.name!r} names a folder: letters, digits, '.', '_' and '-' alone")
        if not self.problems:
            raise ValueError("problems: a run needs at least one")
        if self.costs and len(self.costs) != len(self.problems):
            raise ValueError(f"costs: {len(self.costs)} files for {len(self.problems)} problems; there is one for each, or none at all")
        if self.evaluate == "simulated" and self.measured != MeasuredConfig():
            raise ValueError("measured: nothing is measured where evaluate is 'simulated'; say --evaluate measured")
