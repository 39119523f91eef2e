"""What TensorFlow makes of a plan's devices: which server each one is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from gnnplace.execution.measurement import MeasurementError
from gnnplace.execution.tensorflow_session import device_name
from gnnplace.execution.tensorflow_spec import Machine
from gnnplace.execution.workload import Plan


class Layout(NamedTuple):
    """The servers to start here, those that run elsewhere, and TensorFlow's name of each device of the plan."""

    orders: tuple[Mapping[str, Any], ...]
    elsewhere: tuple[str, ...]
    devices: tuple[str, ...]


def layout(plan: Plan, machine: Machine) -> Layout:
    """Servers for the devices of a plan. Raises MeasurementError where there are more CPU devices than cores or addresses."""
    cpus = [d for d, device in enumerate(plan.devices) if device.kind == "cpu"]
    cores = sorted(os.sched_getaffinity(0))
    there = len(machine.addresses) or len(cores)
    if len(cpus) > there:
        what = "addresses of servers" if machine.addresses else "cores that this process may use"
        raise MeasurementError("unsupported", f"{len(cpus)} devices of kind cpu and {there} {what}")
    orders = [] if machine.addresses else [_order(core) for core in cores[: len(cpus)]]
    elsewhere = machine.addresses[: len(cpus)]
    gpus = len(plan.devices) - len(cpus)
    if gpus:  # one server for all
        logical = gpus if machine.logical_gpu_bytes else 0
        orders.append({"core": None, "port": 0, "logical_gpus": logical, "logical_gpu_bytes": machine.logical_gpu_bytes or 0})
    names, next_cpu, next_gpu = [], 0, 0
    for device in plan.devices:
        if device.kind == "cpu":
            names.append(device_name(next_cpu))
            next_cpu += 1
        else:
            names.append(device_name(len(cpus), "GPU", next_gpu))
            next_gpu += 1
    return Layout(tuple(orders), elsewhere, tuple(names))


def _order(core: int) -> Mapping[str, Any]:
    return {"core": core, "port": 0, "logical_gpus": 0, "logical_gpu_bytes": 0}
