"""The granularity of a placement: whether it places ops, modules or stages.

- `op`: each op has its own device.
- `module`: all ops of a module are on one device, so a device for each module describes the placement.
- `stage`: also, the modules of each device are consecutive in the order in which their forward passes begin, so a list
  of cuts and devices describes the placement (a pipeline).
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
    module_device = devices_of_modules(graph, device)
    if (module_device == NONE).any():
        return "op"
    runs = 1 + int((module_device[1:] != module_device[:-1]).sum())
    return "stage" if runs == len(np.unique(module_device)) else "module"


def devices_of_modules(graph: ComputationGraph, device: Int32[np.ndarray, " ops"]) -> Int64[np.ndarray, " modules"]:
    """The device of each module; `NONE` if its ops are on several."""
    module_map = modules(graph)
    module_device = np.empty(module_map.num_modules, dtype=np.int64)
    module_device[module_map.module] = device
    module_device[np.unique(module_map.module[module_device[module_map.module] != device])] = NONE
    return module_device
