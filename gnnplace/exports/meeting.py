"""Where the code of a divided module would get tensors of two devices, as far as a graph tells.

accelerate moves the arguments of the modules that a map names. What computes between these runs where its inputs are, so these must be
in one place. Of an input that is read there the place is that of the model's arguments; of what is made from nothing, and of the loss,
whose inputs accelerate brings back, it isn't known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gnnplace.exports.homes import LATER, NO_MODULES, Device
from gnnplace.exports.outermost import as_captured
from gnnplace.frontends.origin import INPUT_LAYER, ROOT_LAYER
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.units.modules import modules


class Meeting(NamedTuple):
    """The path of the divided module ("" for the model), and the modules whose results meet there."""

    where: str
    modules: tuple[str, str]


def shared(problem: Problem, placement: Placement) -> tuple[str, str] | None:
    """A parameter, and a module on another device that reads it in the forward pass: a table that is tied."""
    graph = problem.graph
    data = np.flatnonzero(graph.edge_data != NONE)
    holder, reader = graph.output_op[graph.output_root[graph.edge_data[data]]], graph.edge_dst[data]
    reads = graph.kind.among(["parameter"])[holder] & graph.kernel[reader] & ~graph.phase.among(LATER)[reader]
    apart = np.flatnonzero(reads & (placement.device[holder] != placement.device[reader]))
    found = modules(graph)
    return (graph.op_names[holder[apart[0]]], found.names[found.module[reader[apart[0]]]]) if len(apart) else None


def meetings(graph: ComputationGraph, device_map: Mapping[str, Device], main: Device) -> list[Meeting]:
    """One for each divided module and pair of modules."""
    device_map = {as_captured(name): device for name, device in device_map.items()}
    of_layer = {layer: _device(layer, device_map) for layer in graph.layer.values}
    named, later, found = modules(graph), graph.phase.among(LATER), dict[Meeting, None]()
    device: list[Device | None] = [None] * graph.num_ops
    for op in graph.order.tolist():
        layer = graph.layer[op]
        if later[op] or layer is None:
            continue
        if graph.kind[op] in ("parameter", "buffer"):
            own = _device(as_captured(graph.op_names[op]).rpartition(".")[0], device_map)
            device[op] = main if own is None else own
        elif layer == INPUT_LAYER:
            device[op] = main
        elif of_layer[layer] is not None:
            device[op] = of_layer[layer]
        elif layer not in NO_MODULES:
            sources = [int(graph.edge_src[edge]) for edge in graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]].tolist()
                       if graph.edge_data[edge] != NONE]  # fmt: skip
            known = [source for source in sources if device[source] is not None]
            device[op] = device[known[0]] if known else None
            for source in known:
                if device[source] != device[op]:
                    met = (named.names[named.module[known[0]]], named.names[named.module[source]])
                    found[Meeting("" if layer == ROOT_LAYER else layer, met)] = None
    return list(found)


def _device(path: str, device_map: Mapping[str, Device]) -> Device | None:
    """The device of the module that a map names around a path, None where it names none."""
    parts = [] if path == ROOT_LAYER else path.split(".")
    found = (device_map[name] for length in range(len(parts), -1, -1) if (name := ".".join(parts[:length])) in device_map)
    return next(found, None)
