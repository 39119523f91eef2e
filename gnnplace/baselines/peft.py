"""PEFT: list scheduling that looks ahead by an optimistic cost table (Arabnejad and Barbosa, 2014).

`OCT(i, p)` is the longest path after op i on device p if every later op is on its best device, with idle devices and
mean transfers: the maximum over consumers j of the minimum over devices w of `OCT(j, w) + time(j, w) + (mean transfer
if w != p)`. The priority `rank_oct` of an op is the mean of its OCT. The ready op of highest priority is next. It goes
where `EFT + OCT` is least, with insertion.

This version places units, as HEFT does. The first op of a unit decides for the whole unit, by the finish time of the
unit's work plus the OCT of the op. The minimum is over devices that are allowed for the unit of j, and `rank_oct` is a
mean over accelerators. The result is the best of HEFT's six variants.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Bool, Float

from gnnplace.baselines.scheduling.instance import Guide
from gnnplace.baselines.scheduling.list_schedule import fastest_schedule
from gnnplace.baselines.scheduling.ranks import mean_costs, message_ns
from gnnplace.baselines.scheduling.sequence import sequence
from gnnplace.compiled import kernel
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.units import Units, UnitsName, units


def peft(
    problem: Problem, evaluate: Evaluator, *, units_name: UnitsName = "weights", schedule: Schedule = "critical-path"
) -> Placement:
    """The fastest placement of the six variants. Raises ValueError if a unit is allowed on no device."""
    grouping = units(problem.graph, units_name)
    return fastest_schedule(problem, evaluate, grouping, lambda allowed: guide(problem, grouping, allowed), schedule)


def guide(problem: Problem, units: Units, allowed: Bool[np.ndarray, "units devices"]) -> Guide:
    """Ops by falling `rank_oct`, and the OCT of each op on each device as its penalty."""
    table = optimistic_cost_ns(problem, allowed[units.unit])
    rank_oct = table[:, problem.cluster.accelerators].mean(axis=1)
    return Guide(sequence(problem.graph, rank_oct), np.rint(table).astype(np.int64))


def optimistic_cost_ns(problem: Problem, allowed: Bool[np.ndarray, "ops devices"]) -> Float[np.ndarray, "ops devices"]:
    """The optimistic cost table in ns. Each row of `allowed` needs at least one True."""
    graph = problem.graph
    return _table(
        graph.order, graph.out_ptr, graph.edge_dst, graph.edge_data, problem.time_ns, allowed, mean_costs(problem)
    )


@no_type_check
@kernel
def _table(order, out_ptr, edge_dst, edge_data, time_ns, allowed, mean):
    ops, devices = time_ns.shape
    # path[op, device]: the table plus the op's own time; infinite if the device is not allowed
    table, path = np.zeros((ops, devices)), np.empty((ops, devices))
    shortest = np.empty(ops)
    for op in order[::-1]:
        for edge in range(out_ptr[op], out_ptr[op + 1]):
            dst = edge_dst[edge]
            elsewhere = shortest[dst] + message_ns(mean, edge_data[edge])
            for device in range(devices):
                table[op, device] = max(table[op, device], min(path[dst, device], elsewhere))
        for device in range(devices):
            path[op, device] = table[op, device] + time_ns[op, device] if allowed[op, device] else np.inf
        shortest[op] = path[op].min()
    return table
