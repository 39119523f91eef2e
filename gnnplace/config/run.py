"""The configuration of a training run: a tree of frozen dataclasses, each knob with unit, default and check.

A bad value is a ValueError that names the value, the rule and the knob. Complete runs are the files in configs/.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import with_config

from gnnplace.choices import CopiesName, ProtocolName
from gnnplace.config.algorithms import AlgorithmConfig, ReinforceConfig
from gnnplace.config.training import TrainingConfig
from gnnplace.corpus.splits import FIXED
from gnnplace.formats import strict_json
from gnnplace.knobs import MOST_OF_A_STEP, MOST_SEED, above, at_least, between
from gnnplace.policies.protocol import PolicyConfig
from gnnplace.transformations.parallelism import Parallelism

TrackingName = Literal["mlflow", "none"]
EvaluateName = Literal["simulated", "measured"]
SPLITS = ("train", "validation", "test")
COPIES = ("together", "free", "fetched")  # the forms of a step without replicas


@dataclass(frozen=True)
class MeasuredConfig:
    """The timing of each placement.

    Args:
        protocol: "paper" is ten steps and the median of the last five; "steady" warms up until two windows agree, then
            30 steps
        limit_s: seconds that a placement may take, start and steps together, above 0; one that takes longer is
            infeasible
    """

    protocol: ProtocolName = "paper"
    limit_s: float = 120.0

    def __post_init__(self) -> None:
        above(0, "measured.", limit_s=self.limit_s)


@dataclass(frozen=True)
class SelectionConfig:
    """Problems of the corpus.

    Args:
        splits: parts of the corpus's fixed split whose graphs are chosen: "train", "validation", "test"; empty = no
            graph
        lineages: graphs of these lineages alone; empty = of all
        without: lineages that are left out, such as those of a fold
        clusters: presets, files or texts; every graph is placed on each of them
        drawn_clusters: how many clusters are drawn for each graph besides
        synthetic: how many synthetic graphs are added, with the costs of the chosen graphs' ops, each on a drawn
            cluster
        most_ops: the largest step that is chosen, the ops of all its micro-batches together; 0 = any
        micro_batches: every graph makes a step of each of these numbers of micro-batches; empty = the step of
            `parallelism`
        copies: where the copies of an op may stand in these steps, each of "together", "free", "fetched"
    """

    splits: tuple[str, ...] = ()
    lineages: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    drawn_clusters: int = 0
    synthetic: int = 0
    most_ops: int = 0
    micro_batches: tuple[int, ...] = ()
    copies: tuple[CopiesName, ...] = ("together",)

    def __post_init__(self) -> None:
        between(0, MOST_OF_A_STEP, "", drawn_clusters=self.drawn_clusters, synthetic=self.synthetic)
        at_least(0, "", most_ops=self.most_ops)
        for split in self.splits:
            if split not in SPLITS:
                raise ValueError(f"splits: {strict_json.unknown('part of the corpus', split, SPLITS)}")
        for lineage in (*self.lineages, *self.without):
            if lineage not in FIXED:
                raise ValueError(f"lineages: {strict_json.unknown('lineage', lineage, tuple(FIXED))}")
        for number in self.micro_batches:
            at_least(1, "", micro_batches=number)
        if self.micro_batches and not self.copies:
            raise ValueError(f"copies: none of {', '.join(COPIES)} is named, so there is no step to choose")
        for name in self.copies:
            if name not in COPIES:
                raise ValueError(f"copies: {strict_json.unknown('way to place copies here', name, COPIES)}")
        if self.splits and not (self.clusters or self.drawn_clusters or self.synthetic):
            raise ValueError("clusters: none is named or drawn, so there is nothing to place graphs on")


@with_config(arbitrary_types_allowed=True)  # the policy, which is built from its own knobs first
@dataclass(frozen=True)
class RunConfig:
    """One training run.

    Args:
        policy: the policy's own knobs
        name: the run's folder under `runs` starts with it
        seed: of initial weights, samples and the order of problems, at least 0
        problems: pairs of a graph (corpus name, file, or a workload: FILE.py:FUNCTION) and a cluster (preset, file or
            text)
        corpus: further problems, chosen from the corpus
        validation: problems of the corpus that are placed every `training.validation_every` updates and never trained
            on
        dims: sizes of dimensions that ONNX files among the graphs only name, pairs of a name (FILE:NAME for one file
            alone) and a size
        parallelism: the step of each problem: how many micro-batches, each of which is the problem's graph
        costs: measured costs (files of `gnnplace profile`) of the problems, one each; empty = roofline costs
        evaluate: what a placement is worth to the policy: its "simulated" step, or the "measured" one of its workload
            on this machine
        measured: how steps are measured, with evaluate "measured"
        init: a checkpoint whose policy's weights training starts from; null = random ones
        algorithm: how the policy learns from its samples
        training: the loop
        trainer: flags of Lightning's Trainer, such as gradient_clip_val, max_time, accelerator, devices and strategy
        runs: the folder of run folders and of the tracking database
        tracking: "mlflow" (SQLite and files under `runs`) or "none"
        register: name under which a finished run registers its policy in MLflow's registry; null = it doesn't
    """

    policy: PolicyConfig
    name: str = "run"
    seed: int = 0
    problems: tuple[tuple[str, str], ...] = (("nmt-2", "k40-2"),)
    corpus: SelectionConfig = field(default_factory=SelectionConfig)
    validation: SelectionConfig = field(default_factory=SelectionConfig)
    dims: tuple[tuple[str, int], ...] = ()
    parallelism: Parallelism = Parallelism()  # noqa: RUF009, frozen
    costs: tuple[str, ...] = ()
    evaluate: EvaluateName = "simulated"
    measured: MeasuredConfig = field(default_factory=MeasuredConfig)
    init: str | None = None
    algorithm: AlgorithmConfig = field(default_factory=ReinforceConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    trainer: dict[str, Any] = field(default_factory=dict)
    runs: str = "runs"
    tracking: TrackingName = "mlflow"
    register: str | None = None

    def __post_init__(self) -> None:
        between(0, MOST_SEED, "", seed=self.seed)
        if not _plain(self.name):
            raise ValueError(f"name: {self.name!r} names a folder: letters, digits, '.', '_' and '-' alone")
        if self.register is not None and not _plain(self.register):
            raise ValueError(f"register: {self.register!r} names a model: letters, digits, '.', '_' and '-' alone")
        if self.register is not None and self.tracking == "none":
            raise ValueError("register: MLflow's registry is part of tracking 'mlflow'; set that, or register to null")
        if not (self.problems or self.corpus.splits):
            raise ValueError("problems: a run needs at least one, or graphs of the corpus (corpus.splits)")
        if bool(self.validation.splits) != bool(self.training.validation_every):
            raise ValueError("validation: needs both training.validation_every and validation.splits, or neither")
        if self.costs and len(self.costs) != len(self.problems):
            raise ValueError(
                f"costs: {len(self.costs)} files for {len(self.problems)} problems; there is one for each, or none "
                "at all"
            )
        if self.costs and self.corpus.splits:
            raise ValueError("costs: measured costs are of named problems; corpus.splits must be empty")
        if self.evaluate == "measured" and (self.corpus.splits or self.validation.splits):
            raise ValueError(
                "evaluate: 'measured' needs workloads, which graphs of the corpus are not; set corpus.splits to []"
            )
        if self.parallelism.micro_batches > 1 and (self.corpus.micro_batches or self.validation.micro_batches):
            raise ValueError(
                f"parallelism.micro_batches: {self.parallelism.micro_batches}, and the corpus names its own numbers; "
                "name one of both"
            )
        several = self.parallelism.micro_batches > 1
        if several and (self.corpus.synthetic or self.validation.synthetic):
            raise ValueError(
                "parallelism: synthetic graphs have no gradients to sum over micro-batches; corpus.synthetic and "
                "validation.synthetic must be 0"
            )
        if several and self.evaluate == "measured":
            raise ValueError(f"parallelism.micro_batches: {self.parallelism.refusal('evaluate measured')}")
        if self.evaluate == "simulated" and self.measured != MeasuredConfig():
            raise ValueError("measured: nothing is measured where evaluate is 'simulated'; say --evaluate measured")


def _plain(name: str) -> bool:
    return bool(name) and all(c.isalnum() or c in "._-" for c in name)
