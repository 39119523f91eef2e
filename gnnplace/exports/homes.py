"""Where a placement has the modules of a network of PyTorch, for runtimes that run a module, its gradients and its updates in one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gnnplace.cluster import Cluster
from gnnplace.exports.refusal import UnsayableError, listed
from gnnplace.frontends.origin import CLIP_LAYER, INPUT_LAYER, LOSS_LAYER, ROOT_LAYER
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.units.granularity import Granularity
from gnnplace.units.modules import modules, of_pytorch

LATER = ("backward_data", "backward_weight", "update")
NO_MODULES = (LOSS_LAYER, CLIP_LAYER, INPUT_LAYER)
Device = int | str  # the number of an accelerator, or "cpu"


class Homes(NamedTuple):
    """The devices of modules as PyTorch names them, which can be sent to another process.

    `tensors` are parameters and buffers by their first name, `layers` what computes outside all that holds some, by the path of its module.
    """

    tensors: dict[str, Device]
    modules: dict[str, Device]
    layers: dict[str, Device]


def module_devices(problem: Problem, placement: Placement, target: str, granularity: Granularity = "module") -> dict[str, int]:
    """Module -> device, in the order in which modules begin.

    Raises UnsayableError, on behalf of `target`: of graphs that are not PyTorch's; where the forward ops of a module stand on several
    devices (`granularity` would do); and where what a module holds, its gradients or its updates stand elsewhere.
    """
    graph, found = problem.graph, modules(problem.graph)
    if not of_pytorch(graph):
        raise UnsayableError(f"{target}: takes modules of PyTorch, and the ops of {graph.name} are not ({listed(_foreign(graph))})")
    later = graph.phase.among(LATER)
    forward = graph.kernel & ~later & (graph.layer.index != NONE)
    bound = (graph.kernel & later) | (graph.persistent_bytes > 0)
    made: dict[str, int] = {}
    split, elsewhere = list[str](), list[str]()
    for number, name in enumerate(found.names):
        own = found.module == number
        devices = np.unique(placement.device[own & (forward if (own & forward).any() else True)])
        made[name] = int(devices[0])
        if len(devices) > 1:
            split.append(name)
        elif (placement.device[own & bound] != devices[0]).any():
            elsewhere.append(name)
    advice = f"place with --granularity {granularity}"
    if split:
        raise UnsayableError(f"{target}: can't split a module, and the forward ops of {listed(split)} stand on several devices; {advice}")
    if elsewhere:
        raise UnsayableError(
            f"{target}: a module's weights, backward pass and updates are where it runs, and of {listed(elsewhere)} some stand elsewhere; "
            f"{advice}"
        )
    return made


def homes(problem: Problem, of_module: dict[str, int]) -> Homes:
    """The devices of modules as `target_names` has them, and so those of their tensors, and of the layers that hold none."""
    graph, found, names = problem.graph, modules(problem.graph), target_names(problem.cluster)
    device = np.array([of_module[name] for name in found.names])[found.module]
    held = graph.kind.among(["parameter", "buffer"])
    tensors = {graph.op_names[op]: names[device[op]] for op in np.flatnonzero(held).tolist()}
    own = {name: names[at] for name, at in of_module.items() if name not in (*NO_MODULES, ROOT_LAYER)}
    layers: dict[str, Device] = {}
    for op in np.flatnonzero(graph.kernel & ~graph.phase.among(LATER) & (graph.layer.index != NONE)).tolist():
        layer = graph.layer[op]
        if layer is not None and layer not in own and layer not in (*NO_MODULES, ROOT_LAYER):
            layers[layer] = names[device[op]]  # of its last op, whose result it gives
    return Homes(tensors, own, layers)


def target_names(cluster: Cluster) -> list[Device]:
    """The devices as PyTorch numbers them: CPUs are one, accelerators are counted in the order of the cluster."""
    accelerators = [device for device, each in enumerate(cluster.devices) if each.kind != "cpu"]
    return [accelerators.index(device) if device in accelerators else "cpu" for device in range(cluster.num_devices)]


def main_device(device_map: Mapping[str, Device]) -> Device:
    """The device to which accelerate moves the arguments of the model, and what it holds itself: chosen as accelerate does."""
    accelerators = set(device_map.values()) - {"cpu"}
    return next(iter(accelerators)) if accelerators else "cpu"


def _foreign(graph: ComputationGraph) -> list[str]:
    return [kind for kind in graph.kind.values if not kind.startswith(("aten.", "optim."))]
