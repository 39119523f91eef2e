"""The columns of the experiment: which policy with which settings, and which columns an ablation compares."""

from __future__ import annotations

from typing import NamedTuple

from experiments import training
from gnnplace.config.run import RunConfig

SCHEDULE = "--policy.schedule=critical-path"  # of all columns, so that they differ in devices alone
UNCOUNTED = "--training.greedy_every=1000000"  # a greedy placement costs evaluations: there is one, at the end
UNTAUGHT = "--training.warm_start.updates=0"


class Learned(NamedTuple):
    """A policy's settings and what is changed in them; `taught` where it first imitates the best heuristic's placement."""

    policy: str
    settings: str
    changes: tuple[str, ...] = ()
    taught: bool = False

    def config(self, seed: int, updates: int | None = None) -> RunConfig:
        """The run, with as many updates as its settings say unless given."""
        length = () if updates is None else (f"--training.updates={updates}",)
        untaught = () if self.taught else (UNTAUGHT,)
        return training.config_of(self.policy, self.settings, (f"--seed={seed}", SCHEDULE, UNCOUNTED, *untaught, *length, *self.changes))


MAIN = {
    "unit-placer": Learned("unit-placer", "tuned"),
    "colocrl, published": Learned("colocrl", "published"),
    "colocrl, tuned": Learned("colocrl", "tuned"),
    "hierarchical, published": Learned("hierarchical", "published"),
    "hierarchical, tuned": Learned("hierarchical", "tuned"),
    "placeto, published": Learned("placeto", "published"),
    "placeto, tuned": Learned("placeto", "tuned"),
    "hsdag, published": Learned("hsdag", "published"),
    "hsdag, tuned": Learned("hsdag", "tuned"),
    "go, tuned": Learned("go", "tuned"),
    "unit-placer, taught": Learned("unit-placer", "tuned", taught=True),
    "go, tuned, taught": Learned("go", "tuned", taught=True),
    "go, published": Learned("go", "published"),
}
NOT_PRETRAINED = ("--training.grouping.updates=0", "--training.grouping.lr_after=1", "--policy.devices=names")


def _colocrl(units: str) -> Learned:
    return Learned("colocrl", "tuned", (f"--policy.units={units}",))


def _hsdag(*changes: str) -> Learned:
    return Learned("hsdag", "tuned", changes)


TASKS = (
    ("scheduling",), ("fusion",), ("placement", "scheduling"), ("fusion", "placement"), ("fusion", "placement", "scheduling"),
)  # fmt: skip
FUSED = {"Tasks: GO": ("hill-climb", "hill-climb, fused by default")}  # searches that stand below an ablation


ABLATIONS = {  # each one's first column is that of `MAIN` that it changes
    "Groups: the hierarchical policy": {
        "hierarchical, tuned": MAIN["hierarchical, tuned"],
        "hierarchical, devices by name": Learned("hierarchical", "tuned", ("--policy.devices=names",)),
        "hierarchical, learned groups": Learned("hierarchical", "tuned", NOT_PRETRAINED),
        "hierarchical, random groups": Learned("hierarchical", "tuned", (*NOT_PRETRAINED, "--policy.grouper=random")),
        "hierarchical, no groups": Learned("hierarchical", "tuned", (*NOT_PRETRAINED, "--policy.grouper=none")),
    },
    "Rules of colocation: ColocRL": {
        "colocrl, tuned": MAIN["colocrl, tuned"],
        **{f"colocrl, {units}": _colocrl(units) for units in ("readers", "ops", "coarse", "weights", "metis")},
    },
    "Rewards and sums of messages and pools: Placeto": {
        "placeto, tuned": MAIN["placeto, tuned"],
        "placeto, sums": Learned("placeto", "tuned", ("--policy.sums=sum",)),
        "placeto, last reward": Learned("placeto", "tuned", ("--policy.evaluates=last", "--training.credit.returns=terminal")),
        "placeto, last reward, sums": Learned(
            "placeto", "tuned", ("--policy.evaluates=last", "--training.credit.returns=terminal", "--policy.sums=sum")
        ),
    },
    "Attention and modulation: GO": {
        "go, tuned": MAIN["go, tuned"],
        "go, no attention": Learned("go", "tuned", ("--policy.layers=0",)),
        "go, no modulation": Learned("go", "tuned", ("--policy.modulation=false",)),
    },
    "Tasks: GO": {  # the first column decides devices alone; where devices are not decided, they are those of a list schedule
        "go, tuned": MAIN["go, tuned"],
        **{f"go, {' and '.join(tasks)}": Learned("go", "tuned", (f"--policy.tasks=[{','.join(tasks)}]",)) for tasks in TASKS},
    },
    "Features and coarsening: HSDAG": {
        "hsdag, tuned": MAIN["hsdag, tuned"],
        "hsdag, code's features": _hsdag("--policy.features=code"),
        "hsdag, code's coarsening": _hsdag("--policy.coarsening=code"),
        "hsdag, both of the code": _hsdag("--policy.features=code", "--policy.coarsening=code"),
    },
}  # fmt: skip
LEARNED = {**MAIN, **{name: column for study in ABLATIONS.values() for name, column in study.items()}}
