"""What TensorFlow makes of a plan's devices: which server each one is, and how much memory it begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gnnplace.cluster import Device
from gnnplace.execution.tensorflow.session import device_name
from gnnplace.execution.workload import Plan
from gnnplace.frontends.tensorflow.step import Machine
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.isolation.worker import usable_cores


class Layout(NamedTuple):
    """The servers to start, and TensorFlow's name of each device of the plan."""

    orders: tuple[Mapping[str, Any], ...]
    devices: tuple[str, ...]


def layout(devices: Sequence[Device], machine: Machine) -> Layout:
    """The servers that hold the devices of a plan. Raises MeasurementError if there are more CPU devices than usable cores."""
    cpus = [d for d, device in enumerate(devices) if device.kind == "cpu"]
    cores = usable_cores()
    if len(cpus) > len(cores):
        raise MeasurementError("unsupported", f"{len(cpus)} devices of kind cpu and {len(cores)} cores that this process may use")
    orders = [_order(core) for core in cores[: len(cpus)]]
    gpus = len(devices) - len(cpus)
    if gpus:  # one server for all
        logical = gpus if machine.logical_gpu_bytes else 0
        orders.append({"core": None, "logical_gpus": logical, "logical_gpu_bytes": machine.logical_gpu_bytes or 0})
    names, next_cpu, next_gpu = [], 0, 0
    for device in devices:
        if device.kind == "cpu":
            names.append(device_name(next_cpu))
            next_cpu += 1
        else:
            names.append(device_name(len(cpus), "GPU", next_gpu))
            next_gpu += 1
    return Layout(tuple(orders), tuple(names))


def room_bytes(graph: ComputationGraph, plan: Plan) -> list[int]:
    """For each device, twice the bytes that it holds, makes or receives in a step (some are lost between tensors), at most what it has.

    0 for a GPU: its allocator would take the memory itself, not only addresses.
    """
    data = np.flatnonzero(graph.edge_data != NONE)
    outputs = np.concatenate([np.arange(len(graph.output_bytes)), graph.edge_data[data]])
    places = np.concatenate([plan.device[graph.output_op], plan.device[graph.edge_dst[data]]])
    output, place = np.unique(np.stack([outputs, places]), axis=1)
    held = np.bincount(place, graph.output_bytes[output], len(plan.devices))
    held += np.bincount(plan.device, graph.persistent_bytes, len(plan.devices))
    rooms = zip(plan.devices, held.tolist(), strict=True)
    return [min(2 * int(room), device.memory_bytes) if device.kind == "cpu" else 0 for device, room in rooms]


def _order(core: int) -> Mapping[str, Any]:
    return {"core": core, "logical_gpus": 0, "logical_gpu_bytes": 0}
