"""The `device_map` of accelerate and transformers: the device of each outermost module that is on one device.

accelerate runs a module on the device of its parameters and moves the module's inputs to it. So a device_map expresses
placements in which each module is on one device with its weights, gradients and updates, and in which no code between
modules gets tensors of two devices. If the module is at hand, a map is tried before it is written.

Otherwise `runtimes.meetings` finds such code, as far as the graph shows it.
"""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING

import numpy as np

from gnnplace.exports.assignments import checked, device_of, known_as
from gnnplace.exports.trial import Say, Trial, module_names, tried
from gnnplace.frontends.origin import ROOT_LAYER
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.runtimes.homes import NO_MODULES, Device, Divided, as_captured, homes, main_device, module_devices
from gnnplace.runtimes.meetings import Meeting, holder, innermost, meetings, shared_parameter
from gnnplace.runtimes.refusal import ONE_DEVICE, Fault, UnsayableError, beside, listed, whole
from gnnplace.units.modules import modules

if TYPE_CHECKING:
    from gnnplace.exports.targets import Model

TARGET = "accelerate"
OUTSIDE = (ROOT_LAYER, *NO_MODULES)  # on the main device
ON_ANY_DEVICE = "hold tensors as parameters or buffers, and make others on the device of an input"


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


def assigned_accelerate(problem: Problem, document: object, model: Model | None, trial: Trial | None) -> Placement:
    """The placement of a device_map: each module is where the innermost name around it says.

    Raises ValueError for another document, unknown modules, modules without a device, and offloaded ones.
    """
    device_map: dict[str, int | str] = checked(document, dict[str, int | str], "device_map, module -> device")
    if offloaded := [name for name, device in device_map.items() if device == "disk"]:
        raise ValueError(f"{listed(offloaded)} would be read from disk at each call, which no step here does")
    module_of, paths = modules(problem.graph), {as_captured(name): device for name, device in device_map.items()}
    valid = [*module_names(problem.graph, trial), *dict.fromkeys(map(as_captured, module_of.names))]
    known_as(paths, ["", *valid], "module")
    at = {name: device_of(problem, name) for name in dict.fromkeys(paths.values())}
    if len({problem.cluster.devices[device].kind == "cpu" for device in at.values()}) > 1:
        on_cpu = [name for name, device in device_map.items() if problem.cluster.devices[at[device]].kind == "cpu"]
        raise ValueError(
            f"{listed(on_cpu)} are offloaded: beside an accelerator their weights are copied to it at each call; give "
            "them an accelerator"
        )
    main = main_device(paths)
    of_module = [innermost(name, paths) if name not in OUTSIDE else main for name in module_of.names]
    if missing := [name for name, device in zip(module_of.names, of_module, strict=True) if device is None]:
        raise ValueError(f"gives no device to {listed(missing)}")
    device = np.array([at[device] for device in of_module if device is not None], dtype=np.int32)
    return Placement(device[module_of.module])


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
            f"{beside(*map(holder, divided.tied[0]))}"
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
            f"{beside(holder(name) or reader, reader)}"
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


def _described(device: Device) -> str:
    return device if isinstance(device, str) else f"accelerator {device}"
