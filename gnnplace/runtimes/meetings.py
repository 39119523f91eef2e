"""Meetings: code between modules that gets tensors of two devices, as far as a graph shows it.

Code between the modules that a device_map names runs on the device of its inputs, so all of them must be on one device.
A model's argument is on the main device. The device of a tensor that is made from nothing isn't known, nor is that of
the loss, whose inputs accelerate brings back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from gnnplace.frontends.origin import INPUT_LAYER, ROOT_LAYER
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.runtimes.homes import LATER, NO_MODULES, Device, as_captured
from gnnplace.units.modules import modules


class Meeting(NamedTuple):
    """A divided module ("" for the model), and two modules on two devices whose results meet in its code.

    `own`: both are parts of the divided module; else one is an argument of it.
    """

    where: str
    modules: tuple[str, str]
    devices: tuple[Device, Device]
    own: bool


def holder(tensor: str) -> str:
    """The path of the module that holds a tensor."""
    return tensor.rpartition(".")[0]


def shared_parameters(graph: ComputationGraph) -> Int64[np.ndarray, "pairs 2"]:
    """Parameters and the ops of the forward pass that read them."""
    data = np.flatnonzero(graph.edge_data != NONE)
    held, reader = graph.output_op[graph.output_root[graph.edge_data[data]]], graph.edge_dst[data]
    reads = graph.kind.among(["parameter"])[held] & graph.kernel[reader] & ~graph.phase.among(LATER)[reader]
    return np.stack([held[reads], reader[reads]], axis=1).astype(np.int64)


def shared_parameter(problem: Problem, placement: Placement) -> tuple[str, str] | None:
    """A parameter, and a module on another device that reads it in the forward pass, as of a tied table; or None."""
    graph = problem.graph
    apart = [pair for pair in shared_parameters(graph).tolist() if len(set(placement.device[pair].tolist())) > 1]
    if not apart:
        return None
    (parameter, reader), module_of = apart[0], modules(graph)
    return graph.op_names[parameter], module_of.names[module_of.module[reader]]


def meetings(graph: ComputationGraph, device_map: Mapping[str, Device], main: Device) -> list[Meeting]:
    """The meetings of the forward pass, one for each divided module and pair of modules. `main` is the main device."""
    device_map = {as_captured(name): device for name, device in device_map.items()}
    of_layer = {layer: innermost(layer, device_map) for layer in graph.layer.values}
    module_of, later, met = modules(graph), graph.phase.among(LATER), dict[Meeting, None]()
    device: list[Device | None] = [None] * graph.num_ops
    for op in graph.order.tolist():
        layer = graph.layer[op]
        if later[op] or layer is None:
            continue
        if graph.kind[op] in ("parameter", "buffer"):
            held_by = innermost(holder(as_captured(graph.op_names[op])), device_map)
            device[op] = main if held_by is None else held_by
        elif layer == INPUT_LAYER:
            device[op] = main
        elif of_layer[layer] is not None:
            device[op] = of_layer[layer]
        elif layer not in NO_MODULES:
            edges = graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]].tolist()
            sources = [int(graph.edge_src[edge]) for edge in edges if graph.edge_data[edge] != NONE]
            placed = [source for source in sources if device[source] is not None]
            device[op] = here = device[placed[0]] if placed else None
            for source in placed:
                if (there := device[source]) != here and here is not None and there is not None:
                    pair = (module_of.names[module_of.module[placed[0]]], module_of.names[module_of.module[source]])
                    inside = all(_within(graph.layer[each], layer) for each in (placed[0], source))
                    met[Meeting("" if layer == ROOT_LAYER else layer, pair, (here, there), inside)] = None
    return list(met)


def _within(path: str | None, layer: str) -> bool:
    """Whether a path is a module in a layer, or that layer itself."""
    return path is not None and (path == layer or path.startswith(f"{layer}."))


def innermost(path: str, device_map: Mapping[str, Device]) -> Device | None:
    """The device of the innermost module around a path that the map names; None if it names none."""
    parts = [] if path == ROOT_LAYER else path.split(".")
    around = (".".join(parts[:length]) for length in range(len(parts), -1, -1))
    return next((device_map[name] for name in around if name in device_map), None)
