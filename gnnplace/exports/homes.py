"""Where a placement has the modules of a network of PyTorch, for runtimes that keep a module and its updates together.

`outermost` modules that a placement leaves whole are the words of a device_map: accelerate moves the arguments of the
modules that a map names, and nothing else. So a map names a block that is on one device, whose residual sums then have
both their terms there, and looks into a module only where that is divided.
"""

from __future__ import annotations

from collections import defaultdict
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

    `tensors` are parameters and buffers by their first name, `layers` what computes outside all that holds some, by the
    path of its module.
    """

    tensors: dict[str, Device]
    modules: dict[str, Device]
    layers: dict[str, Device]


def module_devices(
    problem: Problem, placement: Placement, target: str, granularity: Granularity = "module"
) -> dict[str, int]:
    """Module -> device, in the order in which modules begin.

    Raises UnsayableError, on behalf of `target`: of graphs that are not PyTorch's; where the forward ops of a module
    stand on several devices (`granularity` would do); and where what a module holds, its gradients or its updates stand
    elsewhere.
    """
    graph, found = problem.graph, modules(problem.graph)
    if not of_pytorch(graph):
        raise UnsayableError(
            f"{target}: takes modules of PyTorch, and the ops of {graph.name} are not ({listed(_foreign(graph))})"
        )
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
        raise UnsayableError(
            f"{target}: can't split a module, and the forward ops of {listed(split)} stand on several devices; {advice}"
        )
    if elsewhere:
        raise UnsayableError(
            f"{target}: a module's weights, backward pass and updates are where it runs, and of {listed(elsewhere)} "
            "some stand elsewhere; "
            f"{advice}"
        )
    return made


def homes(problem: Problem, of_module: dict[str, int]) -> Homes:
    """The devices of modules as `target_names` has them, and so those of
    their tensors, and of the layers that hold none.
    """
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
    """The device to which accelerate moves the arguments of the model,
    and what it holds itself: chosen as accelerate does.
    """
    accelerators = set(device_map.values()) - {"cpu"}
    return next(iter(accelerators)) if accelerators else "cpu"


def _foreign(graph: ComputationGraph) -> list[str]:
    return [kind for kind in graph.kind.values if not kind.startswith(("aten.", "optim."))]


class Divided(NamedTuple):
    """The `map` of outermost whole modules; `bare` tensors of the model itself, where it is divided; `torn`, modules
    that hold tensors and are divided; and `tied` tensors, by two names, whose modules are on two devices.
    """

    map: dict[str, Device]
    bare: dict[str, Device]
    torn: tuple[str, ...]
    tied: tuple[tuple[str, str], ...]


def outermost(homes: Homes, also: Mapping[str, str], names: Mapping[str, str]) -> Divided:
    """The device of each outermost whole module, in the order in which modules begin; that of the model itself is "".

    `also` are further names of tensors, each with the first; `names` are paths of modules where they differ from those
    in `homes`.

    >>> tensors = {"embed.weight": 0, "cls": 0, "0.up.weight": 1, "0.down.weight": 1}
    >>> homes = Homes(tensors, {"0.up": 1, "0.down": 1}, {"0.act": 1})
    >>> outermost(homes, {}, {})
    Divided(map={'0': 1, 'embed': 0}, bare={'cls': 0}, torn=(), tied=())
    >>> outermost(homes._replace(modules={"head": 0}), {"head.weight": "0.up.weight"}, {}).tied
    (('head.weight', '0.up.weight'),)
    """
    tensors = homes.tensors | {name: homes.tensors[first] for name, first in also.items()}
    held = [(_path(name)[:-1], device) for name, device in tensors.items()]
    placed = [(_path(name), device) for name, device in homes.modules.items()] + held
    firm, any_code, children = defaultdict(set), defaultdict(set), defaultdict(dict)  # type: ignore[var-annotated]
    for path, device in [*placed, *((_path(name), device) for name, device in homes.layers.items())]:
        for length in range(len(path) + 1):
            any_code[path[:length]].add(device)
            if length < len(path):
                children[path[:length]][path[: length + 1]] = None
    for path, device in placed:
        for length in range(len(path) + 1):
            firm[path[:length]].add(device)
    holding = {path for path, _ in held}
    found = Divided({}, {name: device for name, device in tensors.items() if "." not in name}, (), ())
    torn: list[str] = []

    def visit(path: tuple[str, ...]) -> None:
        devices = firm[path] or any_code[path]
        name = ".".join(path)
        if len(devices) == 1:
            found.map[names.get(name, name)] = next(iter(devices))
            return
        if path and path in holding:
            torn.append(name)
        for child in children[path]:
            visit(child)

    visit(())
    tied = tuple(pair for pair in also.items() if ".".join(_path(pair[0])[:-1]) in torn)
    return found._replace(bare={} if "" in found.map else found.bare, torn=tuple(torn), tied=tied)


def as_captured(name: str) -> str:
    """A path as layers have it, without what `torch.compile` put between."""
    return ".".join(_path(name))


def _path(name: str) -> tuple[str, ...]:
    """The parts of a path, as it was before `torch.compile`."""
    return tuple(part for part in name.split(".") if part != "_orig_mod")
