"""The `device_map` of accelerate and transformers: the device of each outermost module that is on one device.

accelerate runs a module where its parameters are and moves its inputs there. So it can say a placement in which each module stands
together with its weights, gradients and updates, and in which no code between modules gets tensors of two devices. That is tried before it
is said, where the module is at hand.
"""

from __future__ import annotations

import json
import warnings

from gnnplace.exports.advice import ONE_DEVICE, beside, whole
from gnnplace.exports.homes import Device, homes, module_devices
from gnnplace.exports.meeting import Meeting, meetings, shared
from gnnplace.exports.outermost import Divided
from gnnplace.exports.refusal import UnsayableError, listed
from gnnplace.exports.trial import Fault, Say, Trial, main_device, tried
from gnnplace.placement import Placement
from gnnplace.problems import Problem

TARGET = "accelerate"
ON_ANY_DEVICE = "hold tensors as parameters or buffers, and make others on the device of an input"


def device_map(problem: Problem, placement: Placement, say: Say = warnings.warn, trial: Trial | None = None) -> dict[str, Device]:
    """Module -> the number of its accelerator, or `cpu`, in the order in which modules begin; "" is the whole model.

    `trial` is that of the module in another process; else a module that this process captured is tried here. Raises UnsayableError for
    what accelerate does not run as placed; `say` is told where that could not be tried.

        >>> import gnnplace as gp
        >>> problem = gp.problem("squeezenet", cluster="k40-2")
        >>> device_map(problem, gp.place(problem, "gpu"), print)
        accelerate: not tried, only checked by the graph, whose module is not at hand
        {'': 0}
    """
    of_module = module_devices(problem, placement, TARGET)
    _check_processors(problem, of_module)
    found = homes(problem, of_module)
    divided, came = trial(TARGET, found) if trial else tried(problem.graph, TARGET, found)
    _check_divided(divided)
    made = divided.map | divided.bare
    if came.fault or came.untried:
        _check_shared(problem, placement)
        _refuse(problem, of_module, came.fault, meetings(problem.graph, divided.map, main_device(made)))
        say(f"{TARGET}: not tried, only checked by the graph, {came.untried}")
    return made


def accelerate(problem: Problem, placement: Placement, say: Say, trial: Trial | None) -> str:
    """`device_map` as JSON."""
    return json.dumps(device_map(problem, placement, say, trial), indent=1) + "\n"


def _check_processors(problem: Problem, of_module: dict[str, int]) -> None:
    """Raises UnsayableError for a CPU beside another device: to accelerate that is where weights lie that it copies at each call."""
    cpus = [device for device in dict.fromkeys(of_module.values()) if problem.cluster.devices[device].kind == "cpu"]
    if cpus and len(set(of_module.values())) > 1:
        there = listed([name for name, device in of_module.items() if device in cpus])
        raise UnsayableError(
            f"{TARGET}: computes on one CPU or on accelerators, and {there} are on {problem.cluster.device_names[cpus[0]]}: beside an "
            "accelerator their weights would be copied to it at each call; place with --accelerators-only, or with --devices of one CPU"
        )


def _check_divided(divided: Divided) -> None:
    """Raises UnsayableError for tensors that no key of a map would move to where they were placed."""
    if divided.tied:
        name, first = divided.tied[0]
        raise UnsayableError(
            f"{TARGET}: a tensor has one home, and {name} is {first}, on another device; {beside(*map(_owner, divided.tied[0]))}"
        )
    if divided.torn:
        raise UnsayableError(
            f"{TARGET}: moves a tensor with its module, and {listed(divided.torn)} hold some and stand on several devices; "
            f"{whole(divided.torn)}"
        )
    main = main_device(divided.map | divided.bare)
    if strange := [name for name, device in divided.bare.items() if device != main]:
        raise UnsayableError(
            f"{TARGET}: the model's own tensors are on the first accelerator of the map, {_said(main)}, and {listed(strange)} are on "
            f"{_said(divided.bare[strange[0]])}; no granularity would do, {ONE_DEVICE}, or a cluster that lists this one first"
        )


def _check_shared(problem: Problem, placement: Placement) -> None:
    """Raises UnsayableError where a module reads a parameter that is on another device."""
    if pair := shared(problem, placement):
        name, reader = pair
        raise UnsayableError(
            f"{TARGET}: a tensor has one home, and {reader} reads {name}, on another device; {beside(_owner(name) or reader, reader)}"
        )


def _refuse(problem: Problem, of_module: dict[str, int], fault: Fault | None, met: list[Meeting]) -> None:
    """Raises UnsayableError for a fault of a trial, or where the graph says that tensors meet."""
    if fault is not None and fault.always:
        raise UnsayableError(f"{TARGET}: the step does not run on one accelerator either ({fault.what}); {ON_ANY_DEVICE}")
    names = problem.cluster.device_names
    within = list(dict.fromkeys(each.where for each in met if each.where))
    if fault is not None and fault.where and fault.where not in within:
        within.insert(0, fault.where)
    outside = next((each.modules for each in met if not each.where), None)
    what = f" ({fault.what})" if fault is not None else ""
    if outside is not None and (fault is None or not fault.where):
        first, other = (f"{module} ({names[of_module[module]]})" for module in outside)
        raise UnsayableError(f"{TARGET}: the model's own code gets tensors of {first} and {other}{what}; {beside(*outside)}")
    if within:
        raise UnsayableError(f"{TARGET}: the code of {listed(within)} gets tensors of two devices{what}; {whole(within)}")
    if fault is not None:
        raise UnsayableError(f"{TARGET}: the step's own code fails{what}; {ON_ANY_DEVICE}")


def _owner(tensor: str) -> str:
    return tensor.rpartition(".")[0]


def _said(device: Device) -> str:
    return device if isinstance(device, str) else f"accelerator {device}"
