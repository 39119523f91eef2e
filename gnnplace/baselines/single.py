"""Everything on one device, except ops that are not allowed there: the best CPU, or the best accelerator."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from gnnplace.baselines.fastest import fastest
from gnnplace.baselines.legal import legalised, processors
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.units import expand, units


def on_device(problem: Problem, device: int, schedule: Schedule = "critical-path") -> Placement:
    """Everything on `device`. A colocation group that is not allowed there goes where it is fastest."""
    made = units(problem.graph, "ops")
    return Placement(expand(made, legalised(problem, made, np.full(made.num_units, device))), schedule)


def single_cpu(problem: Problem, evaluate: Evaluator, *, schedule: Schedule = "critical-path") -> Placement:
    """Everything on the fastest CPU. Raises ValueError where the cluster has no CPU."""
    return _best(problem, processors(problem), evaluate, schedule)


def single_gpu(problem: Problem, evaluate: Evaluator, *, schedule: Schedule = "critical-path") -> Placement:
    """Everything on the fastest accelerator with enough memory; if none has, on the one with the least overflow."""
    return _best(problem, problem.cluster.accelerators, evaluate, schedule)


def _best(problem: Problem, devices: Int64[np.ndarray, " devices"], evaluate: Evaluator, schedule: Schedule) -> Placement:
    return fastest(problem, [on_device(problem, int(device), schedule) for device in devices], evaluate)
