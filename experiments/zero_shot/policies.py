"""Every learned planner trained on the same problems for as long, then as a planner of problems that it never saw, beside controls.

    python -m experiments.zero_shot.policies [--rows ...] [--minutes 20] [--seeds 1] [--show]

Problems: graphs of the validation and test splits, no lineage of which is trained on: steps of one micro-batch on presets (`one`), of 4 and
8 micro-batches with their copies together (`together`) and of 4 free ones (`free`); v100-8 is a cluster that no training saw. Opponents
are all planners but searches, each step the best of three orders of ops, and for free copies the published rules of every form. Resumable:
finished cells are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer

from experiments import cells, controls, output, results, training
from experiments.cells import Cell, Job
from experiments.encoders.transfer import blocks
from experiments.problems import time_ns
from experiments.zero_shot import policies_table
from gnnplace.baselines.annealing import hill_climb
from gnnplace.baselines.improve import improve
from gnnplace.baselines.own_starts import own_start
from gnnplace.baselines.searching.budget import Budget
from gnnplace.bounds.bounds import lower_bound
from gnnplace.choices import CopiesName
from gnnplace.config import files
from gnnplace.config.run import RunConfig
from gnnplace.corpus import manifest
from gnnplace.costs import roofline
from gnnplace.moves.ranking import Ranking, read_ranking
from gnnplace.placement import Placement, Schedule, scheduled
from gnnplace.policies.hierarchical.config import HierarchicalConfig
from gnnplace.policies.placing.base_search import Candidates, best_candidate
from gnnplace.policies.protocol import Policy
from gnnplace.policies.tape import Tape
from gnnplace.portfolio import forms, planners, searches
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.simulator.simulator import simulate
from gnnplace.sources import graphs as sources
from gnnplace.training.run.checkpoint import save_policy
from gnnplace.training.run.learner import Learner
from gnnplace.training.run.selection import selected
from gnnplace.training.update.data import Work
from gnnplace.training.update.lesson import reference_ns
from gnnplace.training.update.rollout import decode, evaluated, fastest, rollout
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.units.units import units

HERE = Path(__file__).resolve().parent
PATH = HERE / "results" / "policies.json"
UNSEEN = "v100-8"
SPLITS = ("validation", "test")
SETS: Mapping[str, tuple[tuple[str, ...], tuple[int, ...], CopiesName, int]] = {  # clusters, micro-batches, copies, most ops of a step
    "one": (("k40-2", "k40-4", UNSEEN), (1,), "together", 7000),
    "together": (("k40-4", UNSEEN), (4, 8), "together", 4500),
    "free": (("mixed-4", UNSEEN), (4,), "free", 4500),
}
ORDERS: tuple[Schedule, ...] = ("critical-path", "fifo", "memory")
EVALUATIONS, MOVES = 64, 400
SEEDS = 2  # of controls
INFERENCE = "-inference"
UPDATES = 800


class Row(NamedTuple):
    """A policy with its settings, encoder and overrides; nearly all is learned in the first 300 `updates`."""

    policy: str
    settings: str
    updates: int
    encoder: str | None = None
    overrides: tuple[str, ...] = ()


PLAIN = ("--policy.grouper=clustered", "--policy.groups=32", "--policy.bases=0", "--policy.fed_back=0", "--policy.rounds=1",
         "--policy.base_logit=0", "--training.placements=60")  # fmt: skip
ROWS: Mapping[str, Row] = {
    "hierarchical gnn": Row("hierarchical", "general", UPDATES, "gnn"),
    "hierarchical, no messages": Row("hierarchical", "general", UPDATES, "gnn", ("--policy.encoder_rounds=0",)),
    "hierarchical parsed": Row("hierarchical", "general", UPDATES, "gnn", ("--policy.grouper=parsed",)),
    "hierarchical paper": Row("hierarchical", "general", UPDATES, "paper"),
    "hierarchical clustered, no base": Row("hierarchical", "general", UPDATES, "gnn", PLAIN),
}


class Until(Callback):
    """Ends a training after so many seconds of its process."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._began = process_time()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: Work, batch_idx: int) -> None:
        trainer.should_stop = trainer.should_stop or process_time() - self._began > self._seconds


class First(Callback):
    """Places what is held out by the policy's first weights, under the ranges of features that training has."""

    def __init__(self, problems: Mapping[str, Problem]) -> None:
        self._problems = problems
        self.cell: Cell = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Learner)
        self.cell = placed(pl_module.policy, self._problems, moves=False)


class Counted:
    """The simulator, and how many placements it has simulated."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, problem: Problem, placements: Sequence[Placement], **options: Any) -> tuple[StepResult, ...]:
        self.number += len(placements)
        return simulate(problem, placements, **options)


def config(row: Row, seed: int) -> RunConfig:
    """The settings of a row."""
    return training.config_of(
        row.policy, row.settings, (f"--seed={seed}", f"--training.updates={row.updates}", *row.overrides), row.encoder
    )


class Held(NamedTuple):
    """A problem that no policy is trained on."""

    kind: str
    graph: str
    cluster: str
    micro_batches: int

    @property
    def label(self) -> str:
        """Its name in cells."""
        return f"{self.kind}/{self.graph}.{self.cluster}.{self.micro_batches}"

    def problem(self) -> Problem:
        """The step of the graph on the cluster, with roofline costs."""
        step = Parallelism(self.micro_batches, SETS[self.kind][2]) if self.micro_batches > 1 else Parallelism()
        return roofline.problem(step.of(manifest.graph(self.graph)), sources.cluster(self.cluster))


def held_out() -> list[Held]:
    """Every problem of the sets; steps of several micro-batches are of training alone."""
    entries = [entry for entry in manifest.entries() if entry.split in SPLITS]
    return [
        Held(kind, entry.name, cluster, number)
        for kind, (clusters, numbers, _, most) in SETS.items()
        for entry in entries
        for number in numbers
        for cluster in clusters
        if entry.ops * number <= most and (number == 1 or not entry.name.endswith(INFERENCE))
    ]


def trained(name: str, seed: int, minutes: float) -> Cell:
    """Trains a row's policy; places what is held out before and after."""
    chosen = config(ROWS[name], seed)
    learner, cell = learned(chosen, held_out(), minutes)
    description = learner.description | {"config": files.to_document(chosen)}
    save_policy(weights_of(name, seed), learner.policy, description, cell["updates"])
    return cell


def learned(chosen: RunConfig, placing: Sequence[Held], minutes: float) -> tuple[Learner, Cell]:
    """A policy that learned from what its settings select, for so many minutes at most, and what it places before and after."""
    problems, lessons = {each.label: each.problem() for each in placing}, selected(chosen.corpus, chosen.seed)
    first, until = First(problems), Until(60 * minutes)
    began = process_time()
    learner, curve = training.train(chosen, lessons, [None] * len(lessons), first, until)
    seconds = process_time() - began
    return learner, {
        "problems": len(lessons), "updates": len(curve.updates), "seconds": seconds, "untrained": first.cell,
        "trained": placed(learner.policy, problems, moves=True),
        "curve": blocks([update.get("mean_over_one_device") for update in curve.updates]),
    }  # fmt: skip


def weights_of(name: str, seed: int) -> Path:
    """The file of a row's trained policy."""
    return PATH.parent / "policies" / f"{name.replace(',', '').replace(' ', '-')}-{seed}.safetensors"


def placed(policy: Policy[Any], problems: Mapping[str, Problem], *, moves: bool) -> Cell:
    """The step times of one greedy placement, of one sample, of the best of `EVALUATIONS`, and of `MOVES` more by the improver."""
    return {label: _placed(policy, problem, moves) for label, problem in problems.items()}


def _placed(policy: Policy[Any], problem: Problem, moves: bool) -> Cell:
    counted, generator = Counted(), torch.Generator().manual_seed(0)
    placement, greedy, _ = decode(policy, problem, counted)
    first = counted.number
    decode(policy, problem, counted)
    each = counted.number - first  # evaluations of a sample; the others are of what is looked at once
    number = max(1, (EVALUATIONS - (first - each)) // each)
    episode = rollout(policy, problem, Tape("sample", number, generator), counted)
    best, result = fastest(evaluated(episode))
    sample = episode[-1].results[0].feasible_ns  # as a greedy placement is the last of its episode
    cell: Cell = {"greedy": greedy.feasible_ns, "devices": len(np.unique(placement.device)), "sample": sample}
    cell |= {"best": result.feasible_ns, "evaluations": counted.number - 2 * each}
    return cell | ({"moved": time_ns(problem, _improved(problem, best))} if moves else {})


def _improved(problem: Problem, start: Placement) -> Placement:
    """`MOVES` evaluations of the improver that never saw the lineages, from a placement."""
    return searches.improved(problem, simulate, _improver(), 0, Budget(evaluations=MOVES), start)


@cache
def _improver() -> Ranking:
    return read_ranking(searches.HELD_OUT)


def opponents(held: Held) -> Cell:
    """What policies are compared with on one problem: heuristics, one device, the bound, the base, and controls by seed."""
    problem = held.problem()
    plans = [plan for name, plan in planners.planners(problem, simulate, 0).items() if name not in planners.SEARCHES]
    base = _base(problem)
    return {
        "heuristic_ns": _best_order_ns(problem, [plan(problem) for plan in plans]), "one_device_ns": reference_ns(problem, simulate),
        "rules_ns": _by_rules_ns(held) if held.kind == "free" else None,
        "bound_ns": int(lower_bound(problem)), "base_ns": time_ns(problem, base), "family": manifest.entry(held.graph).family,
        "controls": {name: [time_ns(problem, place(problem, base, seed)) for seed in range(SEEDS)] for name, place in CONTROLS.items()},
    }  # fmt: skip


def _base(problem: Problem) -> Placement:
    return best_candidate(problem, units(problem.graph, "weights"), _candidates(), ORDERS[0], simulate).placement


@cache
def _candidates() -> Candidates:
    knobs = config(ROWS["hierarchical gnn"], 0).policy
    assert isinstance(knobs, HierarchicalConfig)
    return Candidates(knobs.bases, knobs.fed_back)


def _by_rules_ns(held: Held) -> int | None:
    """The step of the fastest published rule, which chooses its form itself: replicas, shards, pipelines."""
    problem = held._replace(kind="together").problem()
    every = [*forms.by_rules(problem, simulate), *forms.by_pipelines(problem, simulate)]
    return min((each.step_time_ns for each in every if each.step_time_ns is not None), default=None)


def _best_order_ns(problem: Problem, placements: Sequence[Placement]) -> int:
    """The least step time of feasible placements under any of `ORDERS`."""
    ordered = [scheduled(each, order) for each in placements for order in ORDERS]
    return min(result.feasible_ns for result in simulate(problem, ordered) if result.feasible_ns is not None)


def _plain(control: controls.Control) -> Callable[[Problem, Placement, int], Placement]:
    return lambda problem, base, seed: control(problem, EVALUATIONS, np.random.default_rng(seed))


def _from_base(problem: Problem, base: Placement, seed: int) -> Placement:
    return _climbed(problem, base, seed, Budget(evaluations=EVALUATIONS - _candidates().number))


def _from_starts(problem: Problem, base: Placement, seed: int) -> Placement:
    generator, budget = np.random.default_rng(seed), Budget(evaluations=EVALUATIONS)
    return _climbed(problem, own_start(problem, simulate, generator, budget), seed, budget)


def _climbed(problem: Problem, start: Placement, seed: int, budget: Budget) -> Placement:
    generator = np.random.default_rng(seed)
    return hill_climb(problem, simulate, generator, start=start, budget=budget, schedule=start.schedule)


def _starts(problem: Problem, base: Placement, seed: int) -> Placement:
    generator, budget = np.random.default_rng(seed), Budget(evaluations=EVALUATIONS)
    return own_start(problem, simulate, generator, budget, count=EVALUATIONS)


CONTROLS: Mapping[str, Callable[[Problem, Placement, int], Placement]] = {
    **{name: _plain(control) for name, control in controls.CONTROLS.items()},
    "hill climbing from the base": _from_base,
    "hill climbing from own starts": _from_starts,
    "own starts alone": _starts,
    "the estimate, from own starts": lambda problem, base, seed: improve(
        problem, simulate, np.random.default_rng(seed), budget=Budget(evaluations=EVALUATIONS)
    ),
    "the improver, from own starts": lambda problem, base, seed: searches.improved(
        problem, simulate, _improver(), seed, Budget(evaluations=EVALUATIONS)
    ),
}


def jobs(rows: Sequence[str], seeds: int, minutes: float) -> dict[str, Job]:
    """Policies by seed first, then what they are compared with."""
    policies: dict[str, Job] = {f"policy/{name}/{seed}": (trained, (name, seed, minutes)) for seed in range(seeds) for name in rows}
    return policies | {f"opponents/{held.label}": (opponents, (held,)) for held in held_out()}


def main() -> None:
    parser = output.parser(__doc__)
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--minutes", type=float, default=20, help="of a processor, for each training")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="only the table of the cells that are there")
    arguments = parser.parse_args()
    if not arguments.show:
        settings = {name: files.to_document(config(row, 0)) for name, row in ROWS.items()}
        cells.compute(PATH, jobs(arguments.rows, arguments.seeds, arguments.minutes), settings | {"minutes": arguments.minutes})
    text = policies_table.table(results.load(PATH)["cells"], {held.label: held.kind for held in held_out()})
    output.show(text, {"table": text}, arguments, PATH.with_suffix(".md"))


if __name__ == "__main__":
    main()
