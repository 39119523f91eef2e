"""The constants of a problem's units that a placer observes, in the order in which it decides."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.cluster import NO_LINK
from gnnplace.policies.placing.observations import UnitTables
from gnnplace.problems import Problem
from gnnplace.units.numbers import block_numbers
from gnnplace.units.units import UnitEdges, Units, output_bytes, persistent_bytes, unit_edges, work_ns

MISSING_LINK = 100.0  # the time of a byte without a link, over its time on the slowest link


def unit_tables(problem: Problem, units: Units, order: Int64[np.ndarray, " units"]) -> UnitTables:
    """Times, memory, neighbours and links of the units; unit `order[t]` is number t in the tables."""
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    edges = unit_edges(problem.graph, units)
    in_order = UnitEdges(position[edges.src].astype(np.int32), position[edges.dst].astype(np.int32), edges.bytes)
    persistent = persistent_bytes(problem.graph, units)[order].astype(np.float64)
    outputs = output_bytes(problem.graph, units)[order].astype(np.float64)
    ns_per_byte, latency_ns = _links(problem)
    time_ns = work_ns(problem, units)[order].astype(np.float64)
    block = _blocks(problem, units)[order]
    capacity = np.maximum(problem.cluster.memory_bytes, 1).astype(np.float64)
    neighbours = peers(in_order, units.num_units)
    return UnitTables(time_ns, persistent, persistent + outputs, block, *neighbours, ns_per_byte, latency_ns, capacity)


def _blocks(problem: Problem, units: Units) -> Int64[np.ndarray, " units"]:
    """The block with most of each unit's work; number 0 is for work without a block."""
    block = block_numbers(problem.graph) + 1
    blocks = int(block.max()) + 1
    pairs, which = np.unique(units.unit * np.int64(blocks) + block, return_inverse=True)
    work = np.bincount(which, weights=problem.time_ns.min(axis=1))
    order = np.lexsort((-pairs, work))  # of a unit, the last pair has most work; on a tie, the lowest block
    block_of_unit = np.zeros(units.num_units, dtype=np.int64)
    block_of_unit[pairs[order] // blocks] = pairs[order] % blocks
    return block_of_unit


def peers(edges: UnitEdges, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """CSR of the neighbours of `count` units, with the bytes sent to and received from each."""
    src, dst = edges.src.astype(np.int64), edges.dst.astype(np.int64)
    carried = np.maximum(edges.bytes, 1).astype(np.float64)  # a control edge orders, so it counts as a byte
    distinct, index = np.unique(np.concatenate([src * count + dst, dst * count + src]), return_inverse=True)
    nothing = np.zeros(len(carried))
    sends = np.bincount(index, weights=np.concatenate([carried, nothing]), minlength=len(distinct))
    receives = np.bincount(index, weights=np.concatenate([nothing, carried]), minlength=len(distinct))
    ptr = np.searchsorted(distinct // count, np.arange(count + 1)).astype(np.int64)
    return ptr, distinct % count, sends, receives


def _links(problem: Problem) -> tuple[Float[np.ndarray, "devices devices"], Float[np.ndarray, "devices devices"]]:
    index, links = problem.cluster.link_index, problem.cluster.links
    slowest = 1e9 / min((link.bandwidth_bytes_per_s for link in links), default=10**9)
    speed = np.array([1e9 / link.bandwidth_bytes_per_s for link in links] + [MISSING_LINK * slowest])
    latency = np.array([float(link.latency_ns) for link in links] + [0.0])
    ns_per_byte = speed[index]  # NO_LINK is -1: the last entry
    np.fill_diagonal(ns_per_byte, 0.0)
    assert NO_LINK == -1
    return ns_per_byte, latency[index]
