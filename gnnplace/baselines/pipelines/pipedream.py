"""PipeDream's stages with replication (Narayanan et al., SOSP 2019, section 3.1), with an update for each step.

A dynamic programme over the row of blocks: stages are runs of blocks, each on one device or on R. It minimises the
largest time of a stage, which shares its micro-batches among its devices and sums its gradients round a ring, and of a
transfer between stages. The paper's R may differ from stage to stage; here a step has one R (2, half of the devices,
all but one), and stages that are not replicated have one home. As in the paper, devices count as equal. The paper takes
the larger of a stage's work and its sums of gradients, which overlap from one update to the next; here they add up,
since an update ends each step.
"""

from __future__ import annotations

import glob
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int32, Int64

from gnnplace.baselines.data_parallel.forms import best_of, copies_of, replicated
from gnnplace.baselines.data_parallel.shares import Shares
from gnnplace.baselines.data_parallel.turns import turns
from gnnplace.baselines.pipeline import LayerSums, rows, sums_of_row
from gnnplace.baselines.pipelines.rows import of_one_micro_batch
from gnnplace.baselines.rings import ring
from gnnplace.cluster import NO_LINK
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Proposal
from gnnplace.units.units import colocation_closure


class Stage(NamedTuple):
    """The blocks `first` to before `end`, on so many devices."""

    first: int
    end: int
    devices: int


class RowLoads(NamedTuple):
    """A row of blocks as sums before each cut, in ns of a step: work on one device, and gradients sent once.

    `send_ns[c]` is the time in which a step's micro-batches cross cut c, `held[c]` the persistent bytes before it.
    """

    work_ns: Float[np.ndarray, " cuts"]
    gradient_ns: Float[np.ndarray, " cuts"]
    send_ns: Float[np.ndarray, " cuts"]
    held: Float[np.ndarray, " cuts"]


def pipedream(problem: Problem, evaluate: Evaluator) -> Proposal | None:
    """The best of several R; None if no stage would be replicated, or all blocks in one."""
    place, count = next(iter(rows(of_one_micro_batch(problem)))), len(problem.cluster.accelerators)
    loads = loads_of_row(problem, place)
    proposals = []
    for replicas in sorted({2, count // 2, count - 1} & set(range(2, copies_of(problem.graph).micro_batches + 1))):
        best = stages(loads, count, replicas, float(problem.cluster.memory_bytes[problem.cluster.accelerators].min()))
        if len(best) > 1 and max(stage.devices for stage in best) > 1:
            proposals.append(_proposal(problem, place, best, replicas))
    return best_of(proposals, evaluate) if proposals else None


def stages(loads: RowLoads, count: int, replicas: int, memory: float) -> list[Stage]:
    """The stages on at most `count` devices, each on one or on `replicas`, with the least bottleneck.

    The persistent bytes of a stage fit the memory. The list is empty if none do.
    """
    cuts = len(loads.work_ns)
    bottleneck = np.full((count + 1, cuts), np.inf)
    bottleneck[:, 0] = 0.0
    came: dict[tuple[int, int], tuple[int, int]] = {}  # the cut before a stage that ends here, and its devices
    for used in range(1, count + 1):
        for number in {1, replicas}:
            for end in range(1, cuts) if number <= used else ():
                ring_ns = 2 * (number - 1) / number * (loads.gradient_ns[end] - loads.gradient_ns[:end])
                stage_ns = (loads.work_ns[end] - loads.work_ns[:end]) / number + ring_ns
                stage_ns[loads.held[end] - loads.held[:end] > memory] = np.inf
                worst = np.maximum(np.maximum(bottleneck[used - number, :end], stage_ns), loads.send_ns[:end])
                start = int(np.argmin(worst))
                if worst[start] < bottleneck[used, end]:
                    bottleneck[used, end] = worst[start]
                    came[used, end] = start, number
    used, end = int(np.argmin(bottleneck[:, -1])), cuts - 1
    chosen: list[Stage] = []
    while end and (used, end) in came:
        start, number = came[used, end]
        chosen.append(Stage(start, end, number))
        used, end = used - number, start
    return chosen[::-1]


def loads_of_row(problem: Problem, place: Int64[np.ndarray, " ops"]) -> RowLoads:
    """The loads of a row of blocks; `place` has the block of every op of a micro-batch."""
    copies, cluster, one = copies_of(problem.graph), problem.cluster, of_one_micro_batch(problem)
    row, devices = sums_of_row(one, place), problem.cluster.accelerators
    first = copies.added & (copies.micro_batch == 1) & problem.graph.kind.among(["sum"])
    sums = np.flatnonzero(first & np.array(["/sum" in name for name in problem.graph.op_names]))
    ns_of = problem.transfer_ns[problem.graph.output_ptr[sums]].mean(axis=1)
    gradients = np.bincount(place[copies.source[sums]], weights=ns_of, minlength=len(row.persistent) - 1)
    return RowLoads(
        copies.micro_batches * row.work_ns[:, devices].mean(axis=1),
        np.concatenate([[0.0], np.cumsum(gradients)]),
        copies.micro_batches * _sent_ns(one, row) * (cluster.num_devices > 1),
        row.persistent,
    )


def _sent_ns(one: Problem, row: LayerSums) -> Float[np.ndarray, " cuts"]:
    """The time of what crosses each cut, in the slower direction, on the mean link between accelerators."""
    devices = one.cluster.accelerators
    links = one.cluster.link_index[np.ix_(devices, devices)]
    rates = one.link_rate[links[links != NO_LINK]]
    return row.send_ns[:, :, rates].mean(axis=2).max(axis=0) if len(rates) else np.zeros(len(row.persistent))


def _proposal(problem: Problem, place: Int64[np.ndarray, " ops"], best: list[Stage], replicas: int) -> Proposal:
    """The form in which stages on one device have one home, and its placement on the devices, in a ring's order."""
    copies, devices = copies_of(problem.graph), ring(problem.cluster, problem.cluster.accelerators)
    number = np.full(replicas, copies.micro_batches // replicas)
    number[: copies.micro_batches % replicas] += 1
    share = Shares(devices[:replicas], number)
    stage_of = np.repeat(np.arange(len(best)), [stage.end - stage.first for stage in best])[place]
    single = np.array([stage.devices == 1 for stage in best])[stage_of]
    form = replicated(problem, share, "together", _layers(copies.original, single))
    start = np.cumsum([0, *(stage.devices for stage in best)])
    return Proposal(
        form, Placement(_devices(form.graph, devices, start, stage_of, single), "given", turns(form.graph, share))
    )


def _layers(graph: ComputationGraph, single: Bool[np.ndarray, " ops"]) -> list[str]:
    """The layers whose variables have one home."""
    held = np.flatnonzero(single & (graph.persistent_bytes > 0) & (np.diff(graph.in_ptr) == 0))
    return [glob.escape(layer) for layer in graph.layer.rows(held).present]


def _devices(
    graph: ComputationGraph,
    devices: Int64[np.ndarray, " accelerators"],
    start: Int64[np.ndarray, " cuts"],
    stage_of: Int64[np.ndarray, " ops_of_a_micro_batch"],
    single: Bool[np.ndarray, " ops_of_a_micro_batch"],
) -> Int32[np.ndarray, " ops"]:
    """The device of each op; all ops of a colocation group have that of the first."""
    copies = copies_of(graph)
    within = np.where(single[copies.source], 0, copies.replica)
    device = devices[start[stage_of[copies.source]] + within]
    return device[colocation_closure(graph)].astype(np.int32)
