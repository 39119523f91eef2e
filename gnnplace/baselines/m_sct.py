"""m-SCT: small communication times under memory limits (Baechi; Jeon et al., SoCC 2020; SCT of Hanen and Munier, 1995).

1. Every op has at most one favourite child, and is the favourite child of at most one parent. A transfer to the favourite child takes no
   time. An integer program chooses favourite children that minimise the step time w on unlimited devices, over starts s and
   x (`x_ij = 0`: j is the favourite child of i), subject to `s_i + p_i <= w`, `s_i + p_i + c_ij x_ij <= s_j`, and at most one 0 among the
   x out of each op and among the x into each op.
2. A linear program solves the relaxation `0 <= x <= 1`. Every x below 0.1 is rounded to 0.
3. Ops are scheduled as by m-ETF, but a device waits for the favourite child of the op that it ran last (`scheduling/earliest_first`).

This version solves step 1 for units, with mean times and transfers over the accelerators. If there are more than `MAX_CELLS` units, it
takes the coarse units, which HiGHS solves in seconds. The favourite child of an op is then its consumer of highest upward rank within the
favourite child of its unit. Units may form cycles; the program leaves out edges against their order. Many solutions are optimal, since
only the longest paths bind; the mean start, with a small weight, breaks ties. Units and memory are as in m-ETF.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int32, Int64

from gnnplace.baselines.scheduling.earliest_first import fastest_earliest_first
from gnnplace.baselines.scheduling.ranks import upward_rank_ns
from gnnplace.baselines.scheduling.sequence import numbered
from gnnplace.graph import NONE
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.adjacency import mean_transfer_ns
from gnnplace.units.units import Units, UnitsName, unit_edges, units, work_ns

MAX_CELLS = 8_000  # HiGHS takes up to three seconds for so many
THRESHOLD = 0.1  # below 0.5, so that rounding leaves at most one favourite child and parent
START_WEIGHT = 0.01


def m_sct(problem: Problem, evaluate: Evaluator, *, units_name: UnitsName = "weights", schedule: Schedule = "critical-path") -> Placement:
    """The faster of two placements, on all devices and on accelerators alone. Raises ValueError where a unit is allowed on no device."""
    made = units(problem.graph, units_name)
    cells = made if made.num_units <= MAX_CELLS else units(problem.graph, "coarse")
    child = favourite_consumers(problem, cells, favourite_children(problem, cells))
    return fastest_earliest_first(problem, evaluate, made, child, schedule)


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
    finish = _rows(cells, edges + cells + 1, (s - edges, s, np.ones(cells)), (s - edges, np.full(cells, edges + cells), -np.ones(cells)))
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


def favourite_consumers(problem: Problem, cells: Units, child: Int64[np.ndarray, " cells"]) -> Int64[np.ndarray, " ops"]:
    """The favourite child of each op: its consumer of highest upward rank within the favourite child of its cell, or `NONE`."""
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
