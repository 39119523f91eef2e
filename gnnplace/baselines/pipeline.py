"""Contiguous splits by dynamic programming (PipeDream, Narayanan et al., 2019, section 3.1, without replication).

The layers of the model form a row, each with its gradients and updates. A stage is a contiguous run of layers on one
accelerator. A split minimises the largest time of a stage or of a transfer between neighbours, which is the throughput
of a pipeline of many steps. A single step is not a pipeline, so the evaluator chooses among all numbers of stages and
several orders of devices. For each there is a split under a limit on persistent memory, a split under a limit on
persistent memory and all outputs, and a split that balances memory alone. For graphs without layers or blocks the row
consists of coarse units by their earliest start, so that stages are contiguous splits of a graph (Tarnawski et al.,
2020).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.baselines.layers import block_of_ops, layer_of_ops, with_families
from gnnplace.baselines.legal import legalised
from gnnplace.baselines.rings import ring
from gnnplace.baselines.single import fastest
from gnnplace.cluster import NO_LINK
from gnnplace.compiled import kernel
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.schedules.paths import decision_order
from gnnplace.units.numbers import block_numbers, numbered
from gnnplace.units.units import expand, units


class LayerSums(NamedTuple):
    """A row of layers as prefix sums: cut c lies before place c, and each sum is over the places before a cut.

    `send_ns[way, c, r]` is the time that everything that crosses cut c forwards (way 0) or backwards (1) occupies a
    channel of rate r. `crosses[way, c]` is the number of outputs and control edges that cross it.
    """

    work_ns: Float[np.ndarray, "cuts devices"]
    persistent: Float[np.ndarray, " cuts"]
    outputs: Float[np.ndarray, " cuts"]
    send_ns: Float[np.ndarray, "2 cuts rates"]
    crosses: Float[np.ndarray, "2 cuts"]


class StageLoads(NamedTuple):
    """Stage s is on the s-th device.

    Its load is a difference of `load[s]`. Its memory is a difference of `held[s]` and at most `room[s]`.
    """

    load: Float[np.ndarray, "stages cuts"]
    held: Float[np.ndarray, "stages cuts"]
    room: Float[np.ndarray, " stages"]
    cut: Float[np.ndarray, "stages cuts"]  # the load of the transfer between stages s - 1 and s


def pipeline(problem: Problem, evaluate: Evaluator, *, schedule: Schedule = "critical-path") -> Placement:
    """The fastest of all splits, over every number of stages.

    Raises ValueError if a colocation group is allowed on no device.
    """
    closure = units(problem.graph, "ops")
    first = np.unique(closure.unit, return_index=True)[1]  # all ops of a unit have the device of its first op
    rows = legalised(problem, closure, np.stack([split[first] for split in _splits(problem)]))
    # the order of `np.unique`, which is slow on long rows
    distinct = sorted({row.astype(">i4").tobytes(): row for row in rows}.items())
    device = expand(closure, np.stack([row for _, row in distinct]))
    return fastest(problem, [Placement(row, schedule) for row in device], evaluate)


def split(stages: StageLoads) -> list[Int64[np.ndarray, " bounds"]]:
    """The cuts, from 0 to the end, for each number of stages that fits.

    They minimise the largest load of a stage or transfer. Ties go to small transfers, then to short last stages.
    """
    start, load = _best_starts(*stages)
    splits = []
    for count in range(1, len(start) + 1):
        if np.isfinite(load[count - 1]):
            bounds = [stages.held.shape[1] - 1]
            for stage in range(count - 1, -1, -1):
                bounds.append(int(start[stage, bounds[-1]]))
            splits.append(np.array(bounds[::-1], dtype=np.int64))
    return splits


def _splits(problem: Problem) -> Iterator[Int64[np.ndarray, " ops"]]:
    """The device of every op in each split, and each accelerator alone, whether it fits or not."""
    for device in problem.cluster.accelerators:
        yield np.full(problem.num_ops, device)
    for place in rows(problem):
        for row in splits_of_row(problem, place):
            yield row[place]


def splits_of_row(problem: Problem, place: Int64[np.ndarray, " ops"]) -> Iterator[Int64[np.ndarray, " places"]]:
    """The device of every place of a row in each split; `place` has the place of every op."""
    row = sums_of_row(problem, place)
    for devices in device_orders(problem):
        for stages in _objectives(problem, row, devices):
            for bounds in split(stages):
                yield np.repeat(devices[: len(bounds) - 1], np.diff(bounds))


def rows(problem: Problem) -> Iterator[Int64[np.ndarray, " ops"]]:
    """The rows to split, as the place of every op: blocks, blocks divided into layers, and layers alone.

    Without any of these, the row consists of coarse units. Some op has place 0.
    """
    yield from (place - place.min() for place in _rows(problem))


def _rows(problem: Problem) -> Iterator[Int64[np.ndarray, " ops"]]:
    graph = problem.graph
    layer, several_blocks = layer_of_ops(graph), block_numbers(graph).max() >= 1
    if several_blocks:
        block = block_of_ops(graph)
        yield block
        yield numbered(with_families(graph, block * graph.num_ops + layer))
    if layer.max() >= 1:
        yield layer
    elif not several_blocks:
        yield _coarse_row(problem, graph)


def _coarse_row(problem: Problem, graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    grouping = units(graph, "coarse")
    place = np.empty(grouping.num_units, dtype=np.int64)
    place[decision_order(problem, grouping)] = np.arange(grouping.num_units)
    return place[grouping.unit]


def sums_of_row(problem: Problem, place: Int64[np.ndarray, " ops"]) -> LayerSums:
    """The prefix sums and crossings of a row of ops. An output that goes to several stages crosses each cut once."""
    graph, length = problem.graph, int(place.max()) + 1
    owned = np.where(graph.output_alias == NONE, graph.output_bytes, 0)
    # control edges one by one
    carried = np.where(graph.edge_data == NONE, len(owned) + np.arange(graph.num_edges), graph.edge_data)
    source = np.concatenate([place[graph.output_op], place[graph.edge_src]])
    ends = np.stack([source, source])
    np.maximum.at(ends[0], carried, place[graph.edge_dst])
    np.minimum.at(ends[1], carried, place[graph.edge_dst])
    weight = np.ones((len(source), problem.transfer_ns.shape[1] + 1))
    weight[:, :-1] = 0.0
    weight[: len(owned), :-1] = problem.transfer_ns
    crossing = np.stack([_over(source, ends[0], weight, length), _over(ends[1], source, weight, length)])
    return LayerSums(
        work_ns=_sums(place, problem.time_ns, length),
        persistent=_sums(place, graph.persistent_bytes, length),
        outputs=_sums(place[graph.output_op], owned, length),
        send_ns=crossing[:, :, :-1],
        crosses=crossing[:, :, -1],
    )


def _over(
    low: Int64[np.ndarray, " carried"],
    high: Int64[np.ndarray, " carried"],
    weight: Float[np.ndarray, "carried columns"],
    length: int,
) -> Float[np.ndarray, "cuts columns"]:
    """The total weight across each cut; an entry crosses the cuts between places `low` and `high`."""
    change = np.zeros((length + 2, weight.shape[1]))
    np.add.at(change, low + 1, weight)
    np.subtract.at(change, high + 1, weight)
    return np.cumsum(change, axis=0)[:-1]


def _sums(
    place: Int64[np.ndarray, " rows"], values: Int64[np.ndarray, "rows *columns"], length: int
) -> Float[np.ndarray, "cuts *columns"]:
    """The sum of the values before each cut."""
    change = np.zeros((length + 1, *values.shape[1:]))
    np.add.at(change, place + 1, values)
    return np.cumsum(change, axis=0)


def device_orders(problem: Problem) -> list[Int64[np.ndarray, " accelerators"]]:
    """The orders of devices: as listed, reversed, fastest first, and round a ring of fast links."""
    devices = problem.cluster.accelerators
    by_speed = devices[np.argsort(problem.time_ns[:, devices].sum(axis=0), kind="stable")]
    orders = (devices, devices[::-1], by_speed, ring(problem.cluster, devices))
    return list({tuple(order.tolist()): order for order in orders}.values())


def _objectives(problem: Problem, row: LayerSums, devices: Int64[np.ndarray, " stages"]) -> list[StageLoads]:
    """The loads of three objectives.

    They are time under a limit on persistent memory, time under a limit that includes all outputs, and balanced memory.
    """
    load, cut = row.work_ns[:, devices].T.copy(), cut_loads(problem, row, devices)
    room = problem.cluster.memory_bytes[devices].astype(np.float64)
    everything = row.persistent + row.outputs
    endless = np.full(len(devices), np.inf)
    filled = everything[None, :] / np.maximum(room, 1.0)[:, None]
    linked = np.where(np.isinf(cut), np.inf, 0.0)
    persistent, everything = (np.tile(held, (len(devices), 1)) for held in (row.persistent, everything))
    return [
        StageLoads(load, persistent, room, cut),
        StageLoads(load, everything, room, cut),
        StageLoads(filled, everything, endless, linked),
    ]


def cut_loads(
    problem: Problem, row: LayerSums, devices: Int64[np.ndarray, " stages"]
) -> Float[np.ndarray, "stages cuts"]:
    """The transfer time across each cut, in the slower direction; infinite if a needed link is missing.

    Two stages in a row may be on one device, which sends nothing.
    """
    cut = np.zeros((len(devices), len(row.persistent)))
    for stage in range(1, len(devices)):
        for way, (src, dst) in enumerate([(devices[stage - 1], devices[stage]), (devices[stage], devices[stage - 1])]):
            if src == dst:
                continue
            link = problem.cluster.link_index[src, dst]
            missing = np.where(row.crosses[way] > 0, np.inf, 0.0)
            sent_ns = missing if link == NO_LINK else row.send_ns[way, :, problem.link_rate[link]]
            cut[stage] = np.maximum(cut[stage], sent_ns)
    return cut


@no_type_check
@kernel
def _best_starts(load, held, room, cut):
    stages, cuts = cut.shape
    start = np.zeros((stages, cuts), np.int64)
    slowest, sent = np.full((stages + 1, cuts), np.inf), np.zeros((stages + 1, cuts))
    slowest[0, 0] = 0.0
    for stage in range(stages):
        for end in range(stage + 1, cuts):
            best, best_sent = np.inf, np.inf
            for begin in range(end - 1, stage - 1, -1):
                here = load[stage, end] - load[stage, begin]
                if here > best or held[stage, end] - held[stage, begin] > room[stage]:
                    break  # a longer stage is slower and holds more
                worst = max(here, slowest[stage, begin], cut[stage, begin])
                total = sent[stage, begin] + cut[stage, begin]
                if worst < best or (worst == best and worst < np.inf and total < best_sent):
                    best, best_sent, start[stage, end] = worst, total, begin
            slowest[stage + 1, end], sent[stage + 1, end] = best, best_sent
    return start, slowest[1:, -1]
