"""What an executor is: the step of a framework that can be placed, run, checked and profiled. PyTorch and TensorFlow each have one.

A `Workload` lives in a host process (host.py), never in the user's own: a step that crashes or hangs takes that process with it and
nothing else. `PlacedStep` is one placement of it that runs on real devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.cluster import Device
from gnnplace.costs.measured import LinkSample
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Timeline


@dataclass(frozen=True, eq=False)
class Plan:
    """Where every op runs and the order in which each device takes its ops: that of `order`, a topological order of all ops.

    `devices` are those of the cluster. Where all are of kind `cpu`, the k-th is a process on the k-th core that this process may use.
    Else the k-th of kind `gpu` is the k-th GPU (PyTorch counts round where there are fewer), and one of kind `cpu` is a thread of PyTorch's
    process, or TensorFlow's process on a core as before.
    """

    devices: tuple[Device, ...]
    device: Int32[np.ndarray, " ops"]
    order: Int32[np.ndarray, " ops"]


def plan(problem: Problem, placement: Placement, timeline: Timeline) -> Plan:
    """The plan of a placement: ops in the order in which they start in its simulated step."""
    position = np.empty(problem.num_ops, dtype=np.int64)
    position[problem.graph.order] = np.arange(problem.num_ops)
    order = np.lexsort((position, timeline.start_ns)).astype(np.int32)
    return Plan(problem.cluster.devices, placement.device, order)


class PlanError(ValueError):
    """A plan that is bad input. Any other ValueError of a step is its failure."""


def refuse(graph: ComputationGraph, plan: Plan) -> None:
    """Raises MeasurementError where a plan names no device or breaks a rule of the graph, PlanError where its order does."""
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
        raise PlanError(f"order: must name each of the {graph.num_ops} ops once")
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[plan.order] = np.arange(graph.num_ops)
    late = np.flatnonzero(position[graph.edge_src] >= position[graph.edge_dst])
    if len(late):
        src, dst = (graph.op_names[int(ends[late[0]])] for ends in (graph.edge_src, graph.edge_dst))
        raise PlanError(f"order: {dst!r} comes before {src!r}, for which it waits")


class Outputs(NamedTuple):
    """The loss of each step so far, and the value of each variable after the last."""

    losses: tuple[float, ...]
    variables: dict[str, np.ndarray]


class OpTimes(NamedTuple):
    """When every op of one step ran on its device, nanoseconds since the step began; -1 for an op that nothing executes."""

    start_ns: Int64[np.ndarray, " ops"]
    end_ns: Int64[np.ndarray, " ops"]


@runtime_checkable
class PlacedStep(Protocol):
    """One placement on real devices, its processes and memory. What goes wrong is a MeasurementError."""

    def run(self, steps: int) -> list[int]:
        """Runs steps; the nanoseconds of each, all devices being done when it ends.

        PyTorch: from the start of the first device to the end of the last, or on several hosts the time of the rank that took longest.
        TensorFlow: from asking for the step to hearing of its end, so that messages to and from its servers count.
        """
        ...

    def outputs(self) -> Outputs:
        """The losses of the steps so far and the variables now."""
        ...

    def op_times(self, steps: int) -> list[OpTimes]:
        """Runs steps and times every op in them; not for step times: to look at the clock costs."""
        ...

    def peak_memory_bytes(self) -> list[int]:
        """Runs a step (the first time it may be two) and returns the most memory that each device held: variables, buffers, workspace.

        Logical devices on one GPU are one memory: each has the figure of all.
        """
        ...

    def described(self) -> list[str]:
        """What each device of the plan is here, in words: a core, a GPU, one of several logical devices on one."""
        ...

    def close(self) -> None:
        """Ends its processes and frees its memory."""
        ...


@runtime_checkable
class Workload(Protocol):
    """The training step of one framework, loaded in this process."""

    @property
    def graph(self) -> ComputationGraph:
        """The step's ops; those of every plan."""
        ...

    def start(self, plan: Plan) -> PlacedStep:
        """Places the step and starts what runs it, with the same variables and inputs every time."""
        ...

    def as_run(self, plan: Plan) -> ComputationGraph:
        """The graph whose simulation is what the executor does under a plan: the same ops, which devices take in the plan's order."""
        ...

    def unplaced(self, steps: int, kind: str = "cpu") -> tuple[Outputs, str]:
        """The same steps as the framework itself runs them on one device of a kind, without placement, and what that was in words."""
        ...

    def links(self, devices: tuple[Device, Device]) -> tuple[LinkSample, ...]:
        """Transfers from the first device to the second (or back, where they are alike), as a placed step makes them."""
        ...


LINK_SIZES_BYTES: Sequence[int] = tuple(2**k for k in range(8, 25, 2))
