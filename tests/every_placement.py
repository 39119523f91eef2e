"""Problems made of ops and edges, and the fastest of all their placements."""

import itertools

import numpy as np

from gnnplace.costs.roofline import problem
from gnnplace.evaluate.simulator import feasible, simulate_devices
from gnnplace.graph import ComputationGraph


def posed(ops, edges, cluster):
    return problem(ComputationGraph.from_ops("by-hand", ops, edges), cluster)


def best_step(made, schedules=("critical-path", "fifo")):
    """The fastest of every feasible placement; None where there is none."""
    devices = np.array(list(itertools.product(range(made.num_devices), repeat=made.num_ops)), dtype=np.int32)
    steps = [simulate_devices(made, devices, schedule) for schedule in schedules]
    return min((int(time) for step in steps for time in step.step_time_ns[feasible(made, step)]), default=None)
