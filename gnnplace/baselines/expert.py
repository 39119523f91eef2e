"""The human expert of Mirhoseini et al. (2017, 2018): each accelerator gets a layer or a run of blocks of equal work.

`layers` finds the block of each op. Convolutional image networks and graphs without blocks go to a single accelerator,
as in the papers. The graph itself decides whether it is such a network; this module knows no names of networks.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.baselines.layers import block_of_ops
from gnnplace.baselines.legal import legalised
from gnnplace.baselines.single import single_gpu
from gnnplace.compiled import kernel
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.numbers import block_numbers
from gnnplace.units.units import Units, expand, units

ROUNDING = 1e-9  # loads that differ by less are equal
CONVOLUTIONS = ("conv", "conv_grad_input", "conv_grad_weight")
IMAGE_RANK = 4  # samples, channels, height, width


def expert(problem: Problem, evaluate: Evaluator, *, schedule: Schedule = "critical-path") -> Placement:
    """The expert's placement. A convolutional network goes to the fastest accelerator whose memory can hold it."""
    graph = problem.graph
    if block_numbers(graph).max() < 1 or _convolutional(graph):
        return single_gpu(problem, evaluate, schedule=schedule)
    closure = units(graph, "ops")
    block = block_of_ops(graph)
    devices = problem.cluster.accelerators
    work = np.bincount(block, weights=problem.time_ns[:, devices].mean(axis=1))
    speed = 1.0 / problem.time_ns[:, devices].sum(axis=0)
    wanted = devices[_runs(work, speed)][block]
    return Placement(expand(closure, legalised(problem, closure, _of_units(closure, wanted))), schedule)


def _convolutional(graph: ComputationGraph) -> bool:
    """Whether image convolutions are most of the work, or occur in most blocks.

    The latter is for ConvNeXt, which does most of its work in matrix products.
    """
    images = graph.output_op[(graph.output_rank == NONE) | (graph.output_rank >= IMAGE_RANK)]  # no sequences
    convolves = graph.canonical_kind.among(CONVOLUTIONS) & np.isin(np.arange(graph.num_ops), images)
    number = block_numbers(graph)
    blocks = len(np.unique(number[convolves & (number != NONE)]))
    return int(graph.flops[convolves].sum()) * 2 > int(graph.flops.sum()) or blocks * 2 > int(number.max()) + 1


def _of_units(units: Units, device: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " units"]:
    """The device of each unit. All its ops have the same device, since a family of ops consists of whole units."""
    wanted = np.empty(units.num_units, dtype=np.int64)
    wanted[units.unit] = device
    return wanted


def _runs(work: Float[np.ndarray, " blocks"], speed: Float[np.ndarray, " runs"]) -> Int64[np.ndarray, " blocks"]:
    """The run of each block. Runs are contiguous, run r is on the r-th device, and the largest time is minimal.

    Among such runs, these are as even as possible. So with as many layers as devices, each device gets one layer.
    """
    ends = np.concatenate([[0.0], np.cumsum(work)])
    slowest, _ = _best_starts(ends, speed, np.inf)
    _, starts = _best_starts(ends, speed, slowest * (1 + ROUNDING))
    run_of, end = np.zeros(len(work), dtype=np.int64), len(work)
    for run in range(len(speed) - 1, -1, -1):
        start = int(starts[run, end])
        run_of[start:end] = run
        end = start
    return run_of


@kernel
@no_type_check
def _best_starts(ends, speed, slowest):
    """The least time of the slowest run, and the start of each run for each end.

    If `slowest` is finite, it limits the time of each run, and the least sum of squared times takes the place of the
    least time. On a tie the latest start wins, so that the first devices are used first.
    """
    least, starts = np.full(len(ends), np.inf), np.zeros((len(speed), len(ends)), np.int64)
    least[0] = 0.0
    for run in range(len(speed)):
        before = least.copy()
        for end in range(len(ends)):
            least[end] = np.inf
            starts[run, end] = end
            for start in range(end, -1, -1):
                time = (ends[end] - ends[start]) / speed[run]
                cost = time if slowest == np.inf else time * time
                if time > slowest or cost > least[end]:
                    break  # a longer run is slower
                total = max(cost, before[start]) if slowest == np.inf else cost + before[start]
                if total < least[end]:
                    least[end], starts[run, end] = total, start
    return least[-1], starts
