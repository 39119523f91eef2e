"""CPOP: the critical path on one device, all other ops by earliest finish time (Topcuoglu, Hariri and Wu, 2002).

The priority of an op is its upward rank plus its downward rank, with mean times and transfers. The critical path leads
from the op of highest upward rank to an exit, each time to the consumer of highest priority. The critical-path device
is the one with the least total time of these ops, among the devices that allow the most of them. The ready op of
highest priority is next. An op of the critical path goes to the critical-path device; any other op goes where it ends
first, with insertion.

This version places units, as HEFT does. A unit with an op of the critical path is critical. A critical unit is placed
like any other unit if the critical-path device does not allow it, has no link from its inputs or is full. The result is
the best of HEFT's six variants.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from jaxtyping import Bool, Float, Int64

from gnnplace.baselines.scheduling.instance import Guide
from gnnplace.baselines.scheduling.list_schedule import fastest_schedule
from gnnplace.baselines.scheduling.ranks import downward_rank_ns, upward_rank_ns
from gnnplace.baselines.scheduling.sequence import sequence
from gnnplace.compiled import kernel
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import MAX_STEP_NS, Problem
from gnnplace.result import Evaluator
from gnnplace.units.units import Units, UnitsName, units


def critical_path_first(
    problem: Problem, evaluate: Evaluator, *, units_name: UnitsName = "weights", schedule: Schedule = "critical-path"
) -> Placement:
    """The fastest placement of the six variants. Raises ValueError if a unit is allowed on no device."""
    grouping = units(problem.graph, units_name)
    upward = upward_rank_ns(problem)
    priority = upward + downward_rank_ns(problem)
    order, critical = sequence(problem.graph, priority), critical_path(problem, upward, priority)

    def guide(allowed: Bool[np.ndarray, "units devices"]) -> Guide:
        return Guide(order, pins_ns(problem, grouping, allowed, critical))

    return fastest_schedule(problem, evaluate, grouping, guide, schedule)


def critical_path(
    problem: Problem, upward: Float[np.ndarray, " ops"], priority: Float[np.ndarray, " ops"]
) -> Int64[np.ndarray, " critical"]:
    """The ops of the critical path, from first to last."""
    graph = problem.graph
    return _critical_path(graph.order[upward[graph.order].argmax()], graph.out_ptr, graph.edge_dst, priority)


def critical_device(
    problem: Problem, critical: Int64[np.ndarray, " critical"], allowed: Bool[np.ndarray, "critical devices"]
) -> int:
    """The device that allows the most critical ops; on a tie the one where they take the least time, then the first."""
    return int(np.lexsort((problem.time_ns[critical].sum(axis=0), -allowed.sum(axis=0)))[0])


def pins_ns(
    problem: Problem, units: Units, allowed: Bool[np.ndarray, "units devices"], critical: Int64[np.ndarray, " critical"]
) -> Int64[np.ndarray, "ops devices"]:
    """A penalty that keeps critical units on the critical-path device.

    It is `MAX_STEP_NS` for their ops on any other device, else 0.
    """
    pinned = np.zeros((units.num_units, problem.num_devices), dtype=np.int64)
    pinned[units.unit[critical]] = MAX_STEP_NS
    pinned[:, critical_device(problem, critical, allowed[units.unit[critical]])] = 0
    return pinned[units.unit]


@no_type_check
@kernel
def _critical_path(first, out_ptr, edge_dst, priority):
    path = [np.int64(first)]
    while out_ptr[path[-1]] < out_ptr[path[-1] + 1]:
        consumers = edge_dst[out_ptr[path[-1]] : out_ptr[path[-1] + 1]]
        path.append(np.int64(consumers[priority[consumers].argmax()]))
    return np.array(path)
