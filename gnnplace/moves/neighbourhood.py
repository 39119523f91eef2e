"""The neighbourhood of placements: the blocks of units that moves send to other devices, and tables of the problem.

A block is a colocation group, a layer, a time step, a layer at a time step and so on (`units.blocks`), or a random walk
along edges.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Float, Int32, Int64, UInt32

from gnnplace.cluster import NO_CHANNEL
from gnnplace.graph import NONE
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.schedules.ranks import Delays, compact, delays
from gnnplace.units.adjacency import adjacency
from gnnplace.units.blocks import GRAINS, Grain, grains, shares
from gnnplace.units.units import Units, allowed, expand, held_bytes, unit_edges, units, work_ns

Devices = Int32[np.ndarray, " units"]


class Blocks(NamedTuple):
    """Units with their allowed devices and neighbours, and the blocks of each grain.

    Block b consists of the units `member[ptr[b]:ptr[b+1]]`. Grain g, called `GRAINS[kind[g]]`, has the blocks
    `first[g]:first[g+1]`. `cumulated` has the cumulative probabilities of the blocks of each grain. `block_of[g, u]` is
    the block of a unit, or -1.
    """

    legal: Bool[np.ndarray, "units devices"]
    near_ptr: Int64[np.ndarray, " units_plus_1"]
    near: Int64[np.ndarray, " ends"]
    kind: Int64[np.ndarray, " grains"]
    first: Int64[np.ndarray, " grains_plus_1"]
    ptr: Int64[np.ndarray, " blocks_plus_1"]
    member: Int64[np.ndarray, " members"]
    cumulated: Float[np.ndarray, " blocks"]
    block_of: Int64[np.ndarray, "grains units"]


class Terrain(NamedTuple):
    """A problem as the kernels of moves read it.

    The ops of unit u are `unit_op[unit_ptr[u]:unit_ptr[u+1]]`. Op i is at `position[i]` in topological order.
    """

    delays: Delays
    order: UInt32[np.ndarray, " ops"]
    position: UInt32[np.ndarray, " ops"]
    unit_ptr: UInt32[np.ndarray, " units_plus_1"]
    unit_op: UInt32[np.ndarray, " ops"]
    in_ptr: UInt32[np.ndarray, " ops_plus_1"]
    in_edge: UInt32[np.ndarray, " edges"]
    edge_src: UInt32[np.ndarray, " edges"]
    edge_bytes: Int64[np.ndarray, " edges"]
    output_ptr: UInt32[np.ndarray, " ops_plus_1"]
    output_op: UInt32[np.ndarray, " outputs"]
    held_bytes: Int64[np.ndarray, " ops"]
    memory_bytes: Int64[np.ndarray, " devices"]
    channel: Int32[np.ndarray, " links"]
    receive_channel: Int32[np.ndarray, " links"]  # or -1
    streams: Int64[np.ndarray, " devices"]
    num_channels: int


class Neighbourhood(NamedTuple):
    """The moves of a problem; none exist if `grains` is empty."""

    closure: Units
    grains: tuple[Grain, ...]
    blocks: Blocks
    terrain: Terrain
    work_ns: Int64[np.ndarray, "units devices"]
    bytes: Int64[np.ndarray, " units"]

    def start(self, placement: Placement) -> Devices:
        """The device of each unit in a placement: that of its last op or, if it is not allowed, the fastest allowed."""
        device = np.zeros(self.closure.num_units, dtype=np.int32)
        device[self.closure.unit] = placement.device
        fastest = np.where(self.blocks.legal, self.work_ns, np.iinfo(np.int64).max).argmin(axis=1)
        return np.where(self.blocks.legal[np.arange(len(device)), device], device, fastest).astype(np.int32)

    def placement(
        self, device: Devices, schedule: Schedule, priority: Int64[np.ndarray, " ops"] | None = None
    ) -> Placement:
        """The placement of all ops from the devices of units."""
        return Placement(expand(self.closure, device), schedule, priority)


_neighbourhoods: WeakKeyDictionary[Problem, Neighbourhood] = WeakKeyDictionary()


def neighbourhood(problem: Problem) -> Neighbourhood:
    """The moves of a problem, built once and kept as long as it lives.

    Raises ValueError if a unit is allowed on no device.
    """
    if problem not in _neighbourhoods:
        _neighbourhoods[problem] = _build(problem)
    return _neighbourhoods[problem]


def _build(problem: Problem) -> Neighbourhood:
    closure = units(problem.graph, "ops")
    work = work_ns(problem, closure)
    several = grains(problem.graph) if problem.num_devices > 1 else ()
    return Neighbourhood(
        closure=closure,
        grains=several,
        blocks=_blocks(problem, closure, several, work.min(axis=1).astype(np.float64)),
        terrain=_terrain(problem, closure),
        work_ns=work,
        bytes=held_bytes(problem.graph, closure),
    )


def _blocks(problem: Problem, closure: Units, several: tuple[Grain, ...], work: Float[np.ndarray, " units"]) -> Blocks:
    edges = unit_edges(problem.graph, closure)
    beside = adjacency(edges, closure.num_units, edges.bytes.astype(np.float64))
    first = np.cumsum([0, *(grain.num_blocks for grain in several)])
    block_of = np.full((len(several), closure.num_units), NONE, dtype=np.int64)
    for number, grain in enumerate(several):
        block_of[number, grain.member] = first[number] + np.repeat(np.arange(grain.num_blocks), np.diff(grain.ptr))
    sizes = [np.diff(grain.ptr) for grain in several]
    return Blocks(
        legal=compact(allowed(problem, closure), np.bool_),
        near_ptr=compact(beside.ptr, np.int64),
        near=compact(beside.neighbour, np.int64),
        kind=compact(np.array([GRAINS.index(grain.name) for grain in several]), np.int64),
        first=compact(first, np.int64),
        ptr=compact(np.cumsum(np.concatenate([[0], *sizes])), np.int64),
        member=compact(np.concatenate([np.zeros(0, np.int64), *(grain.member for grain in several)]), np.int64),
        cumulated=compact(
            np.concatenate([np.zeros(0), *(np.cumsum(shares(grain, work)) for grain in several)]), np.float64
        ),
        block_of=compact(block_of, np.int64),
    )


def _terrain(problem: Problem, closure: Units) -> Terrain:
    graph, cluster = problem.graph, problem.cluster
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[graph.order] = np.arange(graph.num_ops)
    by_unit = np.lexsort((position, closure.unit))
    held = graph.persistent_bytes.copy()
    np.add.at(held, graph.output_op, np.where(graph.output_alias == NONE, graph.output_bytes, 0))
    return Terrain(
        delays=delays(problem),
        order=compact(graph.order, np.uint32),
        position=compact(position, np.uint32),
        unit_ptr=compact(np.searchsorted(closure.unit[by_unit], np.arange(closure.num_units + 1)), np.uint32),
        unit_op=compact(by_unit, np.uint32),
        in_ptr=compact(graph.in_ptr, np.uint32),
        in_edge=compact(graph.in_edges, np.uint32),
        edge_src=compact(graph.edge_src, np.uint32),
        edge_bytes=compact(graph.edge_bytes, np.int64),
        output_ptr=compact(graph.output_ptr, np.uint32),
        output_op=compact(graph.output_op, np.uint32),
        held_bytes=compact(held, np.int64),
        memory_bytes=compact(cluster.memory_bytes, np.int64),
        channel=compact(cluster.link_channel, np.int32),
        receive_channel=compact(
            np.where(cluster.link_receive_channel == NO_CHANNEL, NONE, cluster.link_receive_channel), np.int32
        ),
        streams=compact(cluster.streams, np.int64),
        num_channels=cluster.num_channels,
    )
