"""Problems made of ops and edges, and the steps of all their placements."""

import itertools

import numpy as np

from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.simulator.simulator import simulate, simulate_devices


def posed(ops, edges, cluster):
    return problem(ComputationGraph.from_ops("by-hand", ops, edges), cluster)


def feasible(made, steps):
    """Which samples of `simulate_devices` are feasible, one boolean each."""
    return steps.legal & steps.linked & (steps.peak_memory_bytes <= made.cluster.memory_bytes).all(axis=1)


def every_device(made):
    """The devices of every placement, legal or not."""
    return np.array(list(itertools.product(range(made.num_devices), repeat=made.num_ops)), dtype=np.int32)


def best_step(made, schedules=("critical-path", "fifo")):
    """The fastest of every feasible placement; None where there is none."""
    steps = [simulate_devices(made, every_device(made), schedule) for schedule in schedules]
    return min((int(time) for step in steps for time in step.step_time_ns[feasible(made, step)]), default=None)


def some_steps(made, generator, most):
    """Feasible placements, no more than `most`, each in a random order of its ops, with their steps and timelines."""
    rows = every_device(made)
    fits = np.flatnonzero(feasible(made, simulate_devices(made, rows)))
    chosen = generator.choice(fits, min(most, len(fits)), replace=False)
    placed = [Placement(rows[row], "given", generator.permutation(made.num_ops).astype(np.int64)) for row in chosen]
    found = zip(placed, simulate(made, placed, timeline=True), strict=True)
    return [(placement, result) for placement, result in found if result.infeasible is None]
