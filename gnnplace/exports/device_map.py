"""The `device_map` of accelerate and transformers: the device of every module that holds parameters.

accelerate runs a module where its parameters are and moves its inputs there. So it can say a placement in which the forward ops of each
module stand together. Backward passes follow them, and an optimiser updates a parameter where it is.
"""

from __future__ import annotations

import json

import numpy as np

from gnnplace.cluster import Cluster
from gnnplace.exports.refusal import UnsayableError, listed
from gnnplace.graph import NONE
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.units.granularity import Granularity
from gnnplace.units.modules import modules


def device_map(problem: Problem, placement: Placement) -> dict[str, int | str]:
    """Module -> the number of its accelerator, or `cpu`, in the order in which modules begin.

    Raises UnsayableError where the forward ops of a module stand on several devices.

        >>> import gnnplace as gp
        >>> problem = gp.problem("squeezenet", cluster="k40-2")
        >>> found = device_map(problem, gp.place(problem, "gpu"))
        >>> found["layers.0.squeeze"], len(found)
        (0, 26)
    """
    names = target_names(problem.cluster)
    return {module: names[device] for module, device in module_devices(problem, placement, "accelerate").items()}


def module_devices(problem: Problem, placement: Placement, target: str, granularity: Granularity = "module") -> dict[str, int]:
    """Module -> device, in the order in which modules begin.

    Raises UnsayableError, on behalf of `target`, where the forward ops of a module stand on several devices (`granularity` would do), and
    where a module has no name of PyTorch.
    """
    graph, found = problem.graph, modules(problem.graph)
    strange = [name for name in found.names if "/" in name]
    if strange or not len(graph.layer.values):
        raise UnsayableError(f"{target}: takes modules of PyTorch, and {listed(strange or found.names)} are none")
    forward = graph.kernel & ~graph.phase.among(["backward_data", "backward_weight", "update"]) & (graph.layer.index != NONE)
    made: dict[str, int] = {}
    split: list[str] = []
    for number, name in enumerate(found.names):
        own = found.module == number
        devices = np.unique(placement.device[own & (forward if (own & forward).any() else True)])
        made[name] = int(devices[0])
        if len(devices) > 1:
            split.append(name)
    if split:
        raise UnsayableError(
            f"{target}: can't split a module, and the forward ops of {listed(split)} stand on several devices; "
            f"place with --granularity {granularity}"
        )
    return made


def accelerate(problem: Problem, placement: Placement) -> str:
    """`device_map` as JSON."""
    return json.dumps(device_map(problem, placement), indent=1) + "\n"


def target_names(cluster: Cluster) -> list[int | str]:
    """The devices as PyTorch numbers them: CPUs are one, accelerators are counted in the order of the cluster."""
    accelerators = [device for device, each in enumerate(cluster.devices) if each.kind != "cpu"]
    return [accelerators.index(device) if device in accelerators else "cpu" for device in range(cluster.num_devices)]
