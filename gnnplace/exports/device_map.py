"""The `device_map` of accelerate and transformers: the device of each outermost module that is on one device.

accelerate runs a module on the device of its parameters and moves the module's inputs to it. So a device_map expresses
placements in which each module is on one device with its weights, gradients and updates, and in which no code between
modules gets tensors of two devices. If the module is at hand, a map is tried before it is written.

Otherwise `meetings` finds such code, as far as the graph shows it. Code between the modules that a map names runs on
the device of its inputs, so all of them must be on one device. A model's argument is on the main device. The device of
a tensor that is made from nothing isn't known, nor is that of the loss, whose inputs accelerate brings back.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gnnplace.exports.homes import LATER, NO_MODULES, Device, Divided, as_captured, homes, main_device, module_devices
from gnnplace.exports.refusal import ONE_DEVICE, Fault, UnsayableError, beside, listed, whole
from gnnplace.exports.trial import Say, Trial, tried
from gnnplace.frontends.origin import INPUT_LAYER, ROOT_LAYER
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.units.modules import modules

TARGET = "accelerate"
ON_ANY_DEVICE = "hold tensors as parameters or buffers, and make others on the device of an input"


class Meeting(NamedTuple):
    """A divided module ("" for the model) and two modules on different devices whose results meet in its code."""

    where: str
    modules: tuple[str, str]


def device_map(
    problem: Problem, placement: Placement, say: Say = warnings.warn, trial: Trial | None = None
) -> dict[str, Device]:
    """The accelerator's number, or `cpu`, of each module, in the order in which modules begin; "" is the whole model.

    `trial` tries the module in the process that holds it; by default the trial runs here. Raises UnsayableError for a
    placement that accelerate doesn't run. `say` receives one line if the map could not be tried.

        >>> import gnnplace as gp
        >>> problem = gp.problem("squeezenet", cluster="k40-2")
        >>> device_map(problem, gp.place(problem, "gpu"), print)
        accelerate: not tried, only checked by the graph, whose module is not at hand
        {'': 0}
    """
    of_module = module_devices(problem, placement, TARGET)
    _check_processors(problem, of_module)
    placed = homes(problem, of_module)
    divided, result = trial(TARGET, placed) if trial else tried(problem.graph, TARGET, placed)
    _check_divided(divided)
    devices = divided.map | divided.bare
    if result.fault or result.untried:
        _check_shared(problem, placement)
        _refuse(problem, of_module, result.fault, meetings(problem.graph, divided.map, main_device(devices)))
        say(f"{TARGET}: not tried, only checked by the graph, {result.untried}")
    return devices


def accelerate(problem: Problem, placement: Placement, say: Say, trial: Trial | None) -> str:
    """`device_map` as JSON."""
    return json.dumps(device_map(problem, placement, say, trial), indent=1) + "\n"


def _check_processors(problem: Problem, of_module: dict[str, int]) -> None:
    """Raises UnsayableError for a CPU beside another device: accelerate copies its weights to that one at each call."""
    cpus = [device for device in dict.fromkeys(of_module.values()) if problem.cluster.devices[device].kind == "cpu"]
    if cpus and len(set(of_module.values())) > 1:
        on_cpus = listed([name for name, device in of_module.items() if device in cpus])
        raise UnsayableError(
            f"{TARGET}: computes on one CPU or on accelerators, and {on_cpus} are on "
            f"{problem.cluster.device_names[cpus[0]]}: beside an accelerator their weights would be copied to it at "
            "each call; place with --accelerators-only, or with --devices of one CPU"
        )


def _check_divided(divided: Divided) -> None:
    """Raises UnsayableError for tensors that no key of a map moves to their device."""
    if divided.tied:
        name, first = divided.tied[0]
        raise UnsayableError(
            f"{TARGET}: a tensor has one home, and {name} is {first}, on another device; "
            f"{beside(*map(_owner, divided.tied[0]))}"
        )
    if divided.torn:
        raise UnsayableError(
            f"{TARGET}: moves a tensor with its module, and {listed(divided.torn)} hold some and stand on several "
            f"devices; {whole(divided.torn)}"
        )
    main = main_device(divided.map | divided.bare)
    if strange := [name for name, device in divided.bare.items() if device != main]:
        raise UnsayableError(
            f"{TARGET}: the model's own tensors are on the first accelerator of the map, {_described(main)}, and "
            f"{listed(strange)} are on {_described(divided.bare[strange[0]])}; no granularity would do, {ONE_DEVICE}, "
            "or a cluster that lists this one first"
        )


def _check_shared(problem: Problem, placement: Placement) -> None:
    """Raises UnsayableError if a module reads a parameter that is on another device."""
    if pair := shared_parameter(problem, placement):
        name, reader = pair
        raise UnsayableError(
            f"{TARGET}: a tensor has one home, and {reader} reads {name}, on another device; "
            f"{beside(_owner(name) or reader, reader)}"
        )


def _refuse(problem: Problem, of_module: dict[str, int], fault: Fault | None, met: list[Meeting]) -> None:
    """Raises UnsayableError for the fault of a trial, or for tensors of two devices that meet in the graph."""
    if fault is not None and fault.always:
        raise UnsayableError(
            f"{TARGET}: the step does not run on one accelerator either ({fault.what}); {ON_ANY_DEVICE}"
        )
    names = problem.cluster.device_names
    within = list(dict.fromkeys(meeting.where for meeting in met if meeting.where))
    if fault is not None and fault.where and fault.where not in within:
        within.insert(0, fault.where)
    outside = next((meeting.modules for meeting in met if not meeting.where), None)
    what = f" ({fault.what})" if fault is not None else ""
    if outside is not None and (fault is None or not fault.where):
        first, other = (f"{module} ({names[of_module[module]]})" for module in outside)
        raise UnsayableError(
            f"{TARGET}: the model's own code gets tensors of {first} and {other}{what}; {beside(*outside)}"
        )
    if within:
        raise UnsayableError(
            f"{TARGET}: the code of {listed(within)} gets tensors of two devices{what}; {whole(within)}"
        )
    if fault is not None:
        raise UnsayableError(f"{TARGET}: the step's own code fails{what}; {ON_ANY_DEVICE}")


def _owner(tensor: str) -> str:
    """The path of the module that holds a tensor."""
    return tensor.rpartition(".")[0]


def _described(device: Device) -> str:
    return device if isinstance(device, str) else f"accelerator {device}"


def shared_parameter(problem: Problem, placement: Placement) -> tuple[str, str] | None:
    """A parameter, and a module on another device that reads it in the forward pass, as of a tied table; or None."""
    graph = problem.graph
    data = np.flatnonzero(graph.edge_data != NONE)
    holder, reader = graph.output_op[graph.output_root[graph.edge_data[data]]], graph.edge_dst[data]
    reads = graph.kind.among(["parameter"])[holder] & graph.kernel[reader] & ~graph.phase.among(LATER)[reader]
    apart = np.flatnonzero(reads & (placement.device[holder] != placement.device[reader]))
    if not len(apart):
        return None
    module_of = modules(graph)
    return graph.op_names[holder[apart[0]]], module_of.names[module_of.module[reader[apart[0]]]]


def meetings(graph: ComputationGraph, device_map: Mapping[str, Device], main: Device) -> list[Meeting]:
    """The meetings of the forward pass, one for each divided module and pair of modules. `main` is the main device."""
    device_map = {as_captured(name): device for name, device in device_map.items()}
    of_layer = {layer: _device(layer, device_map) for layer in graph.layer.values}
    module_of, later, met = modules(graph), graph.phase.among(LATER), dict[Meeting, None]()
    device: list[Device | None] = [None] * graph.num_ops
    for op in graph.order.tolist():
        layer = graph.layer[op]
        if later[op] or layer is None:
            continue
        if graph.kind[op] in ("parameter", "buffer"):
            holder = _device(_owner(as_captured(graph.op_names[op])), device_map)
            device[op] = main if holder is None else holder
        elif layer == INPUT_LAYER:
            device[op] = main
        elif of_layer[layer] is not None:
            device[op] = of_layer[layer]
        elif layer not in NO_MODULES:
            edges = graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]].tolist()
            sources = [int(graph.edge_src[edge]) for edge in edges if graph.edge_data[edge] != NONE]
            placed = [source for source in sources if device[source] is not None]
            device[op] = device[placed[0]] if placed else None
            for source in placed:
                if device[source] != device[op]:
                    pair = (module_of.names[module_of.module[placed[0]]], module_of.names[module_of.module[source]])
                    met[Meeting("" if layer == ROOT_LAYER else layer, pair)] = None
    return list(met)


def _device(path: str, device_map: Mapping[str, Device]) -> Device | None:
    """The device of the innermost module around a path that the map names; None if it names none."""
    parts = [] if path == ROOT_LAYER else path.split(".")
    around = (".".join(parts[:length]) for length in range(len(parts), -1, -1))
    return next((device_map[name] for name in around if name in device_map), None)
