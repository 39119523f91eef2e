"""The granularity of a placement: whether it places ops, modules or stages.

- `op`: each op has its own device.
- `module`: all ops of a module are on one device, so a device for each module describes the placement.
- `stage`: also, the modules of each device are consecutive in the order in which their forward passes begin, so a list
  of cuts and devices describes the placement (a pipeline).

Of several micro-batches this holds in each replica; where copies stand freely, modules are whole if the copies for each
micro-batch are (`units/whole`).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.choices import GRANULARITIES as GRANULARITIES
from gnnplace.choices import Granularity as Granularity
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.units.modules import modules
from gnnplace.units.whole import together


def granularity(problem: Problem, placement: Placement) -> Granularity:
    """The coarsest granularity that describes a placement.

    >>> import gnnplace as gp
    >>> problem = gp.problem("gpt2", cluster="k40-2")
    >>> gp.granularity(problem, gp.place(problem, "gpu")), gp.granularity(problem, gp.place(problem, "heft"))
    ('stage', 'op')
    """
    return granularity_of(problem.graph, placement.device)


def granularity_of(graph: ComputationGraph, device: Int32[np.ndarray, " ops"]) -> Granularity:
    """The coarsest granularity that describes the devices of ops."""
    if runs(graph, device) is not None:
        return "stage"
    part = modules(graph.original).module.astype(np.int64)
    return "module" if all(_alike(key, device) for key in together(graph, part)) else "op"


def runs(graph: ComputationGraph, device: Int32[np.ndarray, " ops"]) -> int | None:
    """The most runs of consecutive modules of a replica. None if a module is on several devices, or a device has two.

    All copies of a module that a replica works on must be on one device.
    """
    replicas = 1 if graph.copies is None else graph.copies.replicas
    rows, present = devices_of_modules(graph, device), np.zeros(modules(graph).num_modules, dtype=bool)
    present[modules(graph).module] = True
    most = 0
    for row, some in zip(rows.reshape(replicas, -1), present.reshape(replicas, -1), strict=True):
        used = row[some]
        number = 1 + int((used[1:] != used[:-1]).sum())
        if (used == NONE).any() or number != len(np.unique(used)):
            return None
        most = max(most, number)
    return most


def _alike(key: Int64[np.ndarray, " ops"], device: Int32[np.ndarray, " ops"]) -> bool:
    """Whether ops with equal keys are on equal devices."""
    of_key = np.zeros(int(key.max()) + 2, dtype=np.int32)  # the last one is that of `NONE`
    of_key[key] = device
    return bool((of_key[key] == device)[key != NONE].all())


def devices_of_modules(graph: ComputationGraph, device: Int32[np.ndarray, " ops"]) -> Int64[np.ndarray, " modules"]:
    """The device of each module; `NONE` if its ops are on several, or if a replica has none of it."""
    module_map = modules(graph)
    module_device = np.full(module_map.num_modules, NONE, dtype=np.int64)
    module_device[module_map.module] = device
    module_device[np.unique(module_map.module[module_device[module_map.module] != device])] = NONE
    return module_device
