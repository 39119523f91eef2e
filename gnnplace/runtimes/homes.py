"""The devices of PyTorch modules in a placement, for runtimes that keep a module and its updates on one device.

A device_map names the `outermost` modules that are on one device. accelerate moves the arguments of the modules that a
map names, and nothing else. So a map names a whole block, whose residual sums then have both their terms on its device;
it names parts of a module only if the module is divided.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gnnplace.cluster import Cluster
from gnnplace.frontends.origin import CLIP_LAYER, INPUT_LAYER, LOSS_LAYER, ROOT_LAYER
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.runtimes.refusal import UnsayableError, listed
from gnnplace.units.granularity import Granularity
from gnnplace.units.modules import modules, of_pytorch

LATER = ("backward_data", "backward_weight", "update")
NO_MODULES = (LOSS_LAYER, CLIP_LAYER, INPUT_LAYER)
Device = int | str  # the number of an accelerator, or "cpu"
Path = tuple[str, ...]  # the parts of a module's path


class Homes(NamedTuple):
    """The devices of a model as PyTorch names them; another process can receive them.

    `tensors` are the parameters and buffers by their first names, `modules` the modules by their paths, and `layers`
    the modules that compute and hold no tensors.
    """

    tensors: dict[str, Device]
    modules: dict[str, Device]
    layers: dict[str, Device]


def module_devices(
    problem: Problem, placement: Placement, target: str, granularity: Granularity = "module"
) -> dict[str, int]:
    """The device of each module, in the order in which modules begin.

    Raises UnsayableError, in the name of `target`: for a graph that is not PyTorch's; for a module whose forward ops
    are on several devices, with the advice to place by `granularity`; and for a module whose tensors, gradients or
    updates are on another device.
    """
    graph, module_of = problem.graph, modules(problem.graph)
    if not of_pytorch(graph):
        raise UnsayableError(
            f"{target}: takes modules of PyTorch, and the ops of {graph.name} are not ({listed(foreign(graph))})"
        )
    later = graph.phase.among(LATER)
    forward = graph.kernel & ~later & (graph.layer.index != NONE)
    bound = (graph.kernel & later) | (graph.persistent_bytes > 0)
    device_of: dict[str, int] = {}
    split, elsewhere = list[str](), list[str]()
    for number, name in enumerate(module_of.names):
        ops = module_of.module == number
        devices = np.unique(placement.device[ops & (forward if (ops & forward).any() else True)])
        device_of[name] = int(devices[0])
        if len(devices) > 1:
            split.append(name)
        elif (placement.device[ops & bound] != devices[0]).any():
            elsewhere.append(name)
    advice = f"place with --granularity {granularity}"
    if split:
        raise UnsayableError(
            f"{target}: can't split a module, and the forward ops of {listed(split)} stand on several devices; {advice}"
        )
    if elsewhere:
        raise UnsayableError(
            f"{target}: a module's weights, backward pass and updates are where it runs, and of {listed(elsewhere)} "
            f"some stand elsewhere; {advice}"
        )
    return device_of


def homes(problem: Problem, of_module: dict[str, int]) -> Homes:
    """The devices of modules, of their tensors, and of the layers that hold none, as `target_names` names devices."""
    names, module_of = target_names(problem.cluster), modules(problem.graph)
    return homes_of(problem.graph, [names[of_module[name]] for name in module_of.names])


def homes_of(graph: ComputationGraph, device_of_module: Sequence[Device]) -> Homes:
    """The devices of modules, of their tensors, and of the layers that hold none."""
    module_of = modules(graph)
    device = [device_of_module[module] for module in module_of.module.tolist()]
    tensor_ops = graph.kind.among(["parameter", "buffer"])
    tensors = {graph.op_names[op]: device[op] for op in np.flatnonzero(tensor_ops).tolist()}
    nowhere = (*NO_MODULES, ROOT_LAYER)
    placed = {name: at for name, at in zip(module_of.names, device_of_module, strict=True) if name not in nowhere}
    layers: dict[str, Device] = {}
    for op in np.flatnonzero(graph.kernel & ~graph.phase.among(LATER) & (graph.layer.index != NONE)).tolist():
        layer = graph.layer[op]
        if layer is not None and layer not in placed and layer not in nowhere:
            layers[layer] = device[op]  # the device of its last op, which makes its result
    return Homes(tensors, placed, layers)


def target_names(cluster: Cluster) -> list[Device]:
    """The devices as PyTorch names them: `cpu` for every CPU; accelerators are numbered in the order of the cluster."""
    accelerators = [number for number, device in enumerate(cluster.devices) if device.kind != "cpu"]
    return [accelerators.index(number) if number in accelerators else "cpu" for number in range(cluster.num_devices)]


def process_devices(target: str, cluster: Cluster, devices: Iterable[int]) -> list[str]:
    """The device of each process as PyTorch names it. Raises UnsayableError for cards and CPUs together."""
    names = of_torch(cluster, devices)
    if "cpu" in names and len(set(names)) > 1:
        raise UnsayableError(
            f"{target}: processes send over NCCL between cards, or over gloo between CPUs, and this step runs on both; "
            "place with --accelerators-only"
        )
    return names


def of_torch(cluster: Cluster, devices: Iterable[int]) -> list[str]:
    """Devices as `torch.device` takes them.

    >>> from gnnplace.corpus.clusters import cluster
    >>> of_torch(cluster("k40-2"), [2, 0])
    ['cuda:1', 'cpu']
    """
    names = target_names(cluster)
    return [name if isinstance(name := names[device], str) else f"cuda:{name}" for device in devices]


def main_device(device_map: Mapping[str, Device]) -> Device:
    """accelerate's main device: it moves the arguments of the model, and the model's own tensors, to it."""
    accelerators = set(device_map.values()) - {"cpu"}
    return next(iter(accelerators)) if accelerators else "cpu"


def foreign(graph: ComputationGraph) -> list[str]:
    """The kinds of ops that PyTorch has not."""
    return [kind for kind in graph.kind.values if not kind.startswith(("aten.", "optim."))]


class Divided(NamedTuple):
    """How a model is divided: the `map` of outermost whole modules and, of a divided model, what a map can't express.

    `bare` are the tensors of the divided model itself. `torn` are divided modules that hold tensors. `tied` are tensors
    with two names in modules on two devices.
    """

    map: dict[str, Device]
    bare: dict[str, Device]
    torn: tuple[str, ...]
    tied: tuple[tuple[str, str], ...]


def outermost(homes: Homes, also: Mapping[str, str], names: Mapping[str, str]) -> Divided:
    """The device of each outermost whole module, in the order in which modules begin; the model itself is "".

    `also` maps further names of tensors to their first names. `names` maps paths of modules in `homes` to the paths
    that the model has for them, where these differ.

    >>> tensors = {"embed.weight": 0, "cls": 0, "0.up.weight": 1, "0.down.weight": 1}
    >>> homes = Homes(tensors, {"0.up": 1, "0.down": 1}, {"0.act": 1})
    >>> outermost(homes, {}, {})
    Divided(map={'0': 1, 'embed': 0}, bare={'cls': 0}, torn=(), tied=())
    >>> outermost(homes._replace(modules={"head": 0}), {"head.weight": "0.up.weight"}, {}).tied
    (('head.weight', '0.up.weight'),)
    """
    tensors = homes.tensors | {name: homes.tensors[first] for name, first in also.items()}
    holders = [(_path(name)[:-1], device) for name, device in tensors.items()]
    placed = [*((_path(name), device) for name, device in homes.modules.items()), *holders]
    layers = [(_path(name), device) for name, device in homes.layers.items()]
    devices_of_placed, devices_of_code = _devices_within(placed), _devices_within([*placed, *layers])
    children, holding = _children(devices_of_code), {path for path, _ in holders}
    whole: dict[str, Device] = {}
    torn: list[str] = []

    def visit(path: Path) -> None:
        devices = devices_of_placed[path] or devices_of_code[path]
        name = ".".join(path)
        if len(devices) == 1:
            whole[names.get(name, name)] = next(iter(devices))
            return
        if path and path in holding:
            torn.append(name)
        for child in children[path]:
            visit(child)

    visit(())
    bare = {} if "" in whole else {name: device for name, device in tensors.items() if "." not in name}
    tied = tuple(pair for pair in also.items() if ".".join(_path(pair[0])[:-1]) in torn)
    return Divided(whole, bare, tuple(torn), tied)


def _children(paths: Iterable[Path]) -> dict[Path, list[Path]]:
    """The children of each module, in the order of their paths."""
    children: dict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        if path:
            children[path[:-1]].append(path)
    return children


def _devices_within(placed: Sequence[tuple[Path, Device]]) -> dict[Path, set[Device]]:
    """The devices of each module and of all that it contains, in the order in which modules begin."""
    devices: dict[Path, set[Device]] = defaultdict(set)
    for path, device in placed:
        for length in range(len(path) + 1):
            devices[path[:length]].add(device)
    return devices


def as_captured(name: str) -> str:
    """The path of a module before `torch.compile`, as layers have it."""
    return ".".join(_path(name))


def _path(name: str) -> Path:
    """The parts of a path, without those that `torch.compile` inserts."""
    return tuple(part for part in name.split(".") if part != "_orig_mod")
