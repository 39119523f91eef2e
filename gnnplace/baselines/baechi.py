"""Baechi (Jeon et al., SoCC 2020): m-TOPO, m-ETF and m-SCT, which place ops under memory limits. These versions place
units.

*m-TOPO* fills devices one after another in topological order. A device takes ops until its memory reaches a cap: the
memory of the whole graph divided by the number of devices, plus the memory of the largest op. The memory of an op is
its persistent bytes plus all its outputs, which in training mostly live until the backward pass uses them. Here
accelerators are filled with units, in the topological order of their first ops. Ops without cost (mainly variables)
come just before their first consumer; otherwise one device would take all variables. A device is also full when the
persistent bytes of its units would exceed its memory. A unit that is not allowed on the current device goes where it is
fastest, one that does not fit the last device where the most memory is left. Times and links do not count.

*m-ETF* takes, among all pairs of a ready op and a device with enough memory, the pair with the earliest start.
Transfers wait for their channels. The paper leaves ties open; here they go by upward rank. The first op of a unit
decides for the whole unit, and ops without cost go with their first consumer. A memory has to hold the persistent bytes
of its units; where the placement then overflows, also what Baechi counts beside them in training: results and outputs
that a later pass reads. The evaluator picks the better of two placements: on all devices and on accelerators alone.

*m-SCT* (small communication times; Hanen and Munier, 1995):

1. Every op has at most one favourite child, and is the favourite child of at most one parent. A transfer to the
   favourite child takes no time. An integer program chooses favourite children that minimise the step time w on
   unlimited devices, over starts s and x (`x_ij = 0`: j is the favourite child of i), subject to `s_i + p_i <= w`,
   `s_i + p_i + c_ij x_ij <= s_j`, and at most one 0 among the x out of each op and among the x into each op.
2. A linear program solves the relaxation `0 <= x <= 1`. Every x below 0.1 is rounded to 0.
3. Ops are scheduled as by m-ETF, but a device waits for the favourite child of the op that it ran last
   (`scheduling/earliest_first`).

Here step 1 is solved for units, with mean times and transfers over the accelerators. If there are more than `MAX_CELLS`
units, it takes the coarse units, which HiGHS solves in seconds. The favourite child of an op is then its consumer of
highest upward rank within the favourite child of its unit. Units may form cycles; the program leaves out edges against
their order. Many solutions are optimal, since only the longest paths bind; the mean start, with a small weight, breaks
ties.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int32, Int64

from gnnplace.baselines.legal import legalised
from gnnplace.baselines.scheduling.earliest_first import fastest_earliest_first
from gnnplace.baselines.scheduling.ranks import upward_rank_ns
from gnnplace.baselines.scheduling.sequence import numbered, sequence
from gnnplace.graph import NONE
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.adjacency import mean_transfer_ns
from gnnplace.units.units import (
    Units,
    UnitsName,
    allowed,
    expand,
    output_bytes,
    persistent_bytes,
    unit_edges,
    units,
    work_ns,
)

MAX_CELLS = 8_000  # of m-SCT's programs: HiGHS takes up to three seconds for so many
THRESHOLD = 0.1  # of x: below 0.5, so that rounding leaves at most one favourite child and parent
START_WEIGHT = 0.01  # of the mean start beside the step time


def m_topo(
    problem: Problem, evaluate: Evaluator, *, units_name: UnitsName = "weights", schedule: Schedule = "critical-path"
) -> Placement:
    """The placement of m-TOPO; the evaluator is not used. Raises ValueError if a unit is allowed on no device."""
    grouping = units(problem.graph, units_name)
    return Placement(expand(grouping, legalised(problem, grouping, filled(problem, grouping))), schedule)


def filled(problem: Problem, units: Units) -> Int64[np.ndarray, " units"]:
    """The device that each unit fills, even where it is not allowed there; such a unit takes no memory."""
    graph, devices, legal = problem.graph, problem.cluster.accelerators, allowed(problem, units)
    kept = persistent_bytes(graph, units)
    size = kept + output_bytes(graph, units)
    cap = size.sum() // len(devices) + size.max()
    memory = problem.cluster.memory_bytes[devices]
    wanted, current = np.empty(units.num_units, dtype=np.int64), 0
    load, held = np.zeros(len(devices), dtype=np.int64), np.zeros(len(devices), dtype=np.int64)
    for unit in _in_topological_order(problem, units):
        device = current
        if legal[unit, devices[device]]:
            while device < len(devices) - 1 and (
                load[device] + size[unit] > cap or held[device] + kept[unit] > memory[device]
            ):
                device += 1
            current = device
            if held[device] + kept[unit] > memory[device]:
                device = int((memory - held).argmax())
            load[device], held[device] = load[device] + size[unit], held[device] + kept[unit]
        wanted[unit] = devices[device]
    return wanted


def _in_topological_order(problem: Problem, units: Units) -> Int64[np.ndarray, " units"]:
    """Units by the position of their first op in a topological order of the graph."""
    order = sequence(problem.graph, np.zeros(problem.num_ops)).op
    _, first = np.unique(units.unit[order], return_index=True)
    return np.argsort(first)


def m_etf(
    problem: Problem, evaluate: Evaluator, *, units_name: UnitsName = "weights", schedule: Schedule = "critical-path"
) -> Placement:
    """The faster of m-ETF's two placements. Raises ValueError if a unit is allowed on no device."""
    no_favourites = np.full(problem.num_ops, NONE, dtype=np.int64)
    return fastest_earliest_first(problem, evaluate, units(problem.graph, units_name), no_favourites, schedule)


def m_sct(
    problem: Problem, evaluate: Evaluator, *, units_name: UnitsName = "weights", schedule: Schedule = "critical-path"
) -> Placement:
    """The faster of m-SCT's two placements. Raises ValueError if a unit is allowed on no device."""
    grouping = units(problem.graph, units_name)
    cells = grouping if grouping.num_units <= MAX_CELLS else units(problem.graph, "coarse")
    child = favourite_consumers(problem, cells, favourite_children(problem, cells))
    return fastest_earliest_first(problem, evaluate, grouping, child, schedule)


def favourite_children(problem: Problem, cells: Units) -> Int64[np.ndarray, " cells"]:
    """The favourite child of each cell, or `NONE`."""
    edges = unit_edges(problem.graph, cells)
    src, dst, carried = (column[edges.src < edges.dst] for column in edges)
    devices = problem.cluster.accelerators
    child = np.full(cells.num_units, NONE, dtype=np.int64)
    if len(devices) > 1 and len(src):
        message = mean_transfer_ns(problem, devices, carried)
        x = relaxed(work_ns(problem, cells)[:, devices].mean(axis=1), src, dst, message)
        child[src[x < THRESHOLD]] = dst[x < THRESHOLD]
    return child


def relaxed(
    time_ns: Float[np.ndarray, " cells"],
    src: Int32[np.ndarray, " edges"],
    dst: Int32[np.ndarray, " edges"],
    message_ns: Float[np.ndarray, " edges"],
) -> Float[np.ndarray, " edges"]:
    """The solution x of the linear program. Its variables are x of the edges, s of the cells and w, in this order."""
    from scipy.optimize import linprog  # with sparse arrays half a second, which other planners needn't wait
    from scipy.sparse import vstack

    edges, cells = len(src), len(time_ns)
    scale = max(time_ns.max(), message_ns.max())
    time, message = time_ns / scale, message_ns / scale
    x, s, one = np.arange(edges), edges + np.arange(cells), np.ones(edges)
    follow = _rows(edges, edges + cells + 1, (x, x, message), (x, s[src], one), (x, s[dst], -one))
    finish = _rows(
        cells,
        edges + cells + 1,
        (s - edges, s, np.ones(cells)),
        (s - edges, np.full(cells, edges + cells), -np.ones(cells)),
    )
    leave, enter = (_rows(cells, edges + cells + 1, (end, x, -one)) for end in (src, dst))
    degree = np.concatenate([np.bincount(src, minlength=cells), np.bincount(dst, minlength=cells)])
    solved = linprog(
        np.concatenate([np.zeros(edges), np.full(cells, START_WEIGHT / cells), [1.0]]),
        A_ub=vstack([follow, finish, leave, enter]).tocsr(),
        b_ub=np.concatenate([-time[src], -time, np.minimum(0, 1 - degree)]),
        bounds=np.stack([np.zeros(edges + cells + 1), np.concatenate([one, np.full(cells + 1, np.inf)])], axis=1),
        method="highs",
    )
    assert solved.success, solved.message  # a schedule without favourites solves it
    return solved.x[:edges]


def favourite_consumers(
    problem: Problem, cells: Units, child: Int64[np.ndarray, " cells"]
) -> Int64[np.ndarray, " ops"]:
    """The favourite child of each op, or `NONE`.

    It is the consumer of highest upward rank within the favourite child of the op's cell.
    """
    graph = problem.graph
    number = np.argsort(numbered(graph, upward_rank_ns(problem)))
    chosen = np.flatnonzero(child[cells.unit[graph.edge_src]] == cells.unit[graph.edge_dst])
    chosen = chosen[np.argsort(-number[graph.edge_dst[chosen]], kind="stable")]
    consumer = np.full(graph.num_ops, NONE, dtype=np.int64)
    consumer[graph.edge_src[chosen]] = graph.edge_dst[chosen]  # the last write wins: the lowest number
    return consumer


def _rows(count: int, width: int, *terms: tuple[np.ndarray, np.ndarray, np.ndarray]) -> Any:
    """A sparse matrix, a `coo_array`, from terms (rows, columns, values)."""
    from scipy.sparse import coo_array

    row, column, value = (np.concatenate(parts) for parts in zip(*terms, strict=True))
    return coo_array((value, (row, column)), shape=(count, width))
