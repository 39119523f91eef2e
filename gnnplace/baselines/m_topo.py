"""m-TOPO: devices filled one after another in topological order (Baechi; Jeon et al., SoCC 2020).

Every device takes ops up to a cap on memory, the whole graph's memory by the number of devices plus the largest op's; then the next
device is filled. Memory is what ops keep for the whole step plus all their outputs, which in training mostly live until they are
used backward.

Ours fills accelerators with units, in the order in which their first op comes; ops that cost nothing (variables above all) come just
before their first consumer, or else one device would take all variables. A device is also full when what its units keep would
exceed its own memory. A unit that may not stand on the device being filled goes where it is fastest, and what the last device has no
room for where most is left. Times and links are not asked for.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from gnnplace.baselines.legal import legalised
from gnnplace.baselines.scheduling.sequence import sequence
from gnnplace.placement import Placement, Schedule
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.units.units import Units, UnitsName, allowed, expand, output_bytes, persistent_bytes, units


def m_topo(problem: Problem, evaluate: Evaluator, *, units_name: UnitsName = "weights", schedule: Schedule = "critical-path") -> Placement:
    """The placement; nothing is evaluated. Raises ValueError where a unit may stand nowhere."""
    made = units(problem.graph, units_name)
    return Placement(expand(made, legalised(problem, made, filled(problem, made))), schedule)


def filled(problem: Problem, units: Units) -> Int64[np.ndarray, " units"]:
    """The device that each unit fills, whether it may stand there or not; those that may not take no room."""
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
            while device < len(devices) - 1 and (load[device] + size[unit] > cap or held[device] + kept[unit] > memory[device]):
                device += 1
            current = device
            if held[device] + kept[unit] > memory[device]:
                device = int((memory - held).argmax())
            load[device], held[device] = load[device] + size[unit], held[device] + kept[unit]
        wanted[unit] = devices[device]
    return wanted


def _in_topological_order(problem: Problem, units: Units) -> Int64[np.ndarray, " units"]:
    """Units by the place of their first op in the graph's topological order."""
    order = sequence(problem.graph, np.zeros(problem.num_ops)).op
    _, first = np.unique(units.unit[order], return_index=True)
    return np.argsort(first)
