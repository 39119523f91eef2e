"""m-TOPO: devices filled one after another in topological order (Baechi; Jeon et al., SoCC 2020).

A device takes ops until its memory reaches a cap; then the next device is filled. The cap is the memory of the whole graph divided by the
number of devices, plus the memory of the largest op. The memory of an op is its persistent bytes plus all its outputs, which in training
mostly live until the backward pass uses them.

This version fills accelerators with units, in the topological order of their first ops. Ops without cost (mainly variables) come just
before their first consumer; otherwise one device would take all variables. A device is also full when the persistent bytes of its units
would exceed its memory. A unit that is not allowed on the current device goes where it is fastest. A unit that does not fit the last device
goes where the most memory is left. Times and links do not count.
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
    """The placement; the evaluator is not used. Raises ValueError where a unit is allowed on no device."""
    made = units(problem.graph, units_name)
    return Placement(expand(made, legalised(problem, made, filled(problem, made))), schedule)


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
            while device < len(devices) - 1 and (load[device] + size[unit] > cap or held[device] + kept[unit] > memory[device]):
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
