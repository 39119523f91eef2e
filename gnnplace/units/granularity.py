"""The granularity of a placement: how coarse the words are in which it can be said.

`op`: each op has its device. `module`: all ops of a module are on one device, so a device for each module says it.
`stage`: besides, the modules of each device follow one another in the order in which their forward passes begin, so
that a row of cuts says it (a pipeline).
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
    """The coarsest granularity in which a placement can be said.

    >>> import gnnplace as gp
    >>> problem = gp.problem("gpt2", cluster="k40-2")
    >>> gp.granularity(problem, gp.place(problem, "gpu")), gp.granularity(problem, gp.place(problem, "heft"))
    ('stage', 'op')
    """
    return granularity_of(problem.graph, placement.device)


def granularity_of(graph: ComputationGraph, device: Int32[np.ndarray, " ops"]) -> Granularity:
    """The coarsest granularity in which the devices of ops can be said."""
    of_module = devices_of_modules(graph, device)
    if (of_module == NONE).any():
        return "op"
    ranges = 1 + int((of_module[1:] != of_module[:-1]).sum())
    return "stage" if ranges == len(np.unique(of_module)) else "module"


def devices_of_modules(graph: ComputationGraph, device: Int32[np.ndarray, " ops"]) -> Int64[np.ndarray, " modules"]:
    """The device of each module, `NONE` where its ops are on several."""
    module_map = modules(graph)
    of_module = np.empty(module_map.num_modules, dtype=np.int64)
    of_module[module_map.module] = device
    of_module[np.unique(module_map.module[of_module[module_map.module] != device])] = NONE
    return of_module
