"""What a human expert does: one layer, or a run of blocks of equal work, on each accelerator (Mirhoseini et al., 2017 and 2018).

What stands in which block is for `layers` to say. Networks of convolutions, and graphs without blocks, go to a single accelerator,
as in the papers.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.baselines.layers import block_of_ops
from gnnplace.baselines.legal import legalised
from gnnplace.baselines.single import single_gpu
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement, Schedule
from gnnplace.problem import Problem
from gnnplace.result import Evaluator
from gnnplace.transforms.units import Units, expand, units

CONVOLUTIONS = ("conv", "conv_grad_input", "conv_grad_weight")


def expert(problem: Problem, evaluate: Evaluator, *, schedule: Schedule = "critical-path") -> Placement:
    """The expert's placement; the single accelerator of networks of convolutions is the best one that fits."""
    graph = problem.graph
    if graph.block.max() < 1 or _convolutional(graph):
        return single_gpu(problem, evaluate, schedule=schedule)
    made = units(graph, "ops")
    block = block_of_ops(graph)
    devices = problem.cluster.accelerators
    work = np.bincount(block, weights=problem.time_ns[:, devices].mean(axis=1))
    speed = 1.0 / problem.time_ns[:, devices].sum(axis=0)
    wanted = devices[_runs(work, speed)][block]
    return Placement(expand(made, legalised(problem, made, _of_units(made, wanted))), schedule)


def _convolutional(graph: ComputationGraph) -> bool:
    return int(graph.flops[graph.canonical_kind.among(CONVOLUTIONS)].sum()) * 2 > int(graph.flops.sum())


def _of_units(units: Units, device: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " units"]:
    """The device of each unit's last op: the ops of a unit agree, since families hold whole units."""
    wanted = np.empty(units.num_units, dtype=np.int64)
    wanted[units.unit] = device
    return wanted


def _runs(work: Float[np.ndarray, " blocks"], speed: Float[np.ndarray, " runs"]) -> Int64[np.ndarray, " blocks"]:
    """The run of each block: contiguous runs, run r on the r-th device, such that the slowest device is done as early as may be."""
    ends = np.concatenate([[0.0], np.cumsum(work)])
    count = len(work)
    slowest = np.where(np.arange(count + 1) == 0, 0.0, np.inf)
    starts = np.zeros((len(speed), count + 1), dtype=np.int64)
    for run, rate in enumerate(speed):
        load = np.maximum((ends[None, :] - ends[:, None]) / rate, slowest[:, None])  # [start, end]
        load[np.tril_indices(count + 1, -1)] = np.inf
        starts[run] = count - load[::-1].argmin(axis=0)  # the latest of equals: the first devices are used first
        slowest = load.min(axis=0)
    run_of, end = np.zeros(count, dtype=np.int64), count
    for run in range(len(speed) - 1, -1, -1):
        start = int(starts[run, end])
        run_of[start:end] = run
        end = start
    return run_of
