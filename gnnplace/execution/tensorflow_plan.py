"""What of a plan TensorFlow can hold: which server each device is, and what is refused before anything starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gnnplace.execution.measurement import MeasurementError
from gnnplace.execution.tensorflow_session import device_name
from gnnplace.execution.tensorflow_spec import Machine
from gnnplace.execution.workload import Plan
from gnnplace.graph import NONE, ComputationGraph


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


def refuse(graph: ComputationGraph, plan: Plan) -> None:
    """Raises MeasurementError where a plan names no device or breaks a rule of the graph, ValueError where its order does."""
    for i, d in enumerate(plan.device.tolist()):
        if not 0 <= d < len(plan.devices):
            raise MeasurementError("unsupported", f"op {graph.op_names[i]!r}: device {d} is none of the {len(plan.devices)} of the plan")
        allowed = graph.allowed[i]
        if allowed is not None and plan.devices[d].kind not in allowed.split(","):
            raise MeasurementError("unsupported", f"op {graph.op_names[i]!r} may only run on {allowed}, not on {plan.devices[d].name}")
    first: dict[int, int] = {}
    for i, group in enumerate(graph.colocation.index.tolist()):
        if group != NONE and plan.device[first.setdefault(group, i)] != plan.device[i]:
            names = f"{graph.op_names[first[group]]!r} and {graph.op_names[i]!r}"
            raise MeasurementError("unsupported", f"colocation group {graph.colocation[i]!r} is split: {names} stand on different devices")
    _require_topological(graph, plan)


def _require_topological(graph: ComputationGraph, plan: Plan) -> None:
    if not np.array_equal(np.sort(plan.order), np.arange(graph.num_ops)):
        raise ValueError(f"order: must name each of the {graph.num_ops} ops once")
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[plan.order] = np.arange(graph.num_ops)
    late = np.flatnonzero(position[graph.edge_src] >= position[graph.edge_dst])
    if len(late):
        src, dst = (graph.op_names[int(ends[late[0]])] for ends in (graph.edge_src, graph.edge_dst))
        raise ValueError(f"order: {dst!r} comes before {src!r}, for which it waits")


def _order(core: int) -> Mapping[str, Any]:
    return {"core": core, "port": 0, "logical_gpus": 0, "logical_gpu_bytes": 0}
