"""The placements of a problem that are measured: 20, from one device to random ops, under both schedules."""

from __future__ import annotations

from functools import partial

import numpy as np

from experiments.training import config_of, teacher_of, train
from gnnplace.baselines.expert import expert
from gnnplace.baselines.heft import heft
from gnnplace.baselines.metis import metis
from gnnplace.baselines.random_units import draw
from gnnplace.placement import Placement, Schedule
from gnnplace.portfolio import planners
from gnnplace.problems import Problem
from gnnplace.result import Planner
from gnnplace.simulator.simulator import simulate
from gnnplace.training.update import rollout
from gnnplace.units.units import UnitsName, allowed, expand, units

SEED = 0
POLICY = ("--training.updates=30", "--training.warm_start.updates=60", "--training.placements=32", "--tracking=none")
PLANNED: dict[str, Planner] = {
    "expert": partial(expert, evaluate=simulate),
    "metis-ops": partial(metis, evaluate=simulate, units_name="ops"),
    "metis-weights": partial(metis, evaluate=simulate, units_name="weights"),
    "heft-ops": partial(heft, evaluate=simulate, units_name="ops"),
    "heft-coarse": partial(heft, evaluate=simulate, units_name="coarse"),
    "hill-climb": planners.planner("hill-climb", simulate, SEED),
}
FIFO_TOO = ("expert", "metis-weights", "hill-climb")
RANDOM: tuple[tuple[UnitsName, float], ...] = (
    ("coarse", 0.5), ("coarse", 0.3), ("coarse", 0.1), ("weights", 0.5), ("weights", 0.2), ("ops", 0.5), ("ops", 0.1),
)  # fmt: skip


def placements(problem: Problem) -> dict[str, Placement]:
    """The placements by name, schedule included."""
    devices = {name: plan(problem).device for name, plan in PLANNED.items()}
    found: dict[str, Placement] = {}
    for device in range(2):
        found[f"{problem.cluster.device_names[device]} alone"] = Placement(np.full(problem.num_ops, device, dtype=np.int32))
    found |= {_named(name, "critical-path"): Placement(device.copy()) for name, device in devices.items()}
    found |= {_named(name, "fifo"): Placement(devices[name].copy(), "fifo") for name in FIFO_TOO}
    found |= _policy(problem)
    generator = np.random.default_rng(SEED)
    for units_name, share in RANDOM:
        made = units(problem.graph, units_name)
        drawn = draw(allowed(problem, made), 1, generator)[0]
        moved = np.where(generator.random(len(drawn)) < 2 * share, drawn, 0).astype(np.int32)
        found[_named(f"random {units_name} {share:.0%}", "critical-path")] = Placement(expand(made, moved))
    return found


def _policy(problem: Problem) -> dict[str, Placement]:
    """A policy trained on this problem for a little: its greedy placement and its best sample."""
    config = config_of("unit-placer", "tuned", POLICY)
    learner, _ = train(config, [problem], [teacher_of(problem, config)])
    best = learner.best.by_problem[0]
    found = {_named("policy, greedy", "critical-path"): rollout.greedy(learner.policy)(problem)}
    if best is not None:
        found[_named("policy, best sample", "critical-path")] = best.placement
    return found


def _named(name: str, schedule: Schedule) -> str:
    return f"{name}, {schedule}"
