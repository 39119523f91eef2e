"""The executor protocols, and what both executors share: plans, checks of plans, outputs, op times and held memory.

A `Workload` is a framework's training step; a `RunningStep` is that step running on real devices. PyTorch and
TensorFlow each have one. A workload lives in a child process (host.py): if a step crashes or hangs, only that process
is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.cluster import Device
from gnnplace.costs.measured import LinkSample
from gnnplace.graph import CONTROL, NONE, ComputationGraph
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Timeline
from gnnplace.transformations.parallelism import Parallelism


@dataclass(frozen=True, eq=False)
class ExecutionPlan:
    """The device of every op, and a topological `order` of all ops; each device runs its ops in this order.

    `devices` are those of the cluster. If all are of kind `cpu`, the k-th is a process on the k-th usable core.
    Otherwise the k-th device of kind `gpu` is the k-th GPU (PyTorch wraps around if there are fewer), and a device of
    kind `cpu` is a thread of PyTorch's process or, with TensorFlow, a process on a core. The ops are those of the step
    in its `form`; None: that of the workload's graph.
    """

    devices: tuple[Device, ...]
    device: Int32[np.ndarray, " ops"]
    order: Int32[np.ndarray, " ops"]
    form: Parallelism | None = None


def plan(problem: Problem, placement: Placement, timeline: Timeline) -> ExecutionPlan:
    """The plan of a placement: ops run in the order of their start times in the simulated step."""
    position = np.empty(problem.num_ops, dtype=np.int64)
    position[problem.graph.order] = np.arange(problem.num_ops)
    order = np.lexsort((position, timeline.start_ns)).astype(np.int32)
    return ExecutionPlan(problem.cluster.devices, placement.device, order, Parallelism.in_graph(problem.graph))


class PlanError(ValueError):
    """Wrong input: an illegal plan. A ValueError of the step itself is none."""


def refuse(graph: ComputationGraph, plan: ExecutionPlan) -> None:
    """Checks a plan.

    Raises MeasurementError for an unknown or forbidden device or a split group, PlanError for a wrong order.
    """
    for i, d in enumerate(plan.device.tolist()):
        if not 0 <= d < len(plan.devices):
            raise MeasurementError(
                "unsupported", f"op {graph.op_names[i]!r}: device {d} is none of the plan's {len(plan.devices)} devices"
            )
        allowed = graph.allowed[i]
        if allowed is not None and plan.devices[d].kind not in allowed.split(","):
            raise MeasurementError(
                "unsupported", f"op {graph.op_names[i]!r} may only run on {allowed}, not on {plan.devices[d].name}"
            )
    first: dict[int, int] = {}
    for i, group in enumerate(graph.colocation.index.tolist()):
        if group != NONE and plan.device[first.setdefault(group, i)] != plan.device[i]:
            names = f"{graph.op_names[first[group]]!r} and {graph.op_names[i]!r}"
            raise MeasurementError(
                "unsupported", f"colocation group {graph.colocation[i]!r} is split: {names} are on different devices"
            )
    _require_topological(graph, plan)


def _require_topological(graph: ComputationGraph, plan: ExecutionPlan) -> None:
    """Raises PlanError if the plan's order is no topological order of all ops."""
    if not np.array_equal(np.sort(plan.order), np.arange(graph.num_ops)):
        raise PlanError(f"order: must contain each of the {graph.num_ops} ops once")
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[plan.order] = np.arange(graph.num_ops)
    late = np.flatnonzero(position[graph.edge_src] >= position[graph.edge_dst])
    if len(late):
        src, dst = (graph.op_names[int(ends[late[0]])] for ends in (graph.edge_src, graph.edge_dst))
        raise PlanError(f"order: {dst!r} comes before {src!r}, on which it depends")


def without_updates(plan: ExecutionPlan, whole: ComputationGraph, graph: ComputationGraph) -> ExecutionPlan:
    """A plan of the graph `whole`, reduced to `graph`, which lacks the ops of the phase `update`. Ops match by name.

    Raises ValueError if the graphs differ in anything else: then the plan was made for another step.
    """
    op_of = {name: op for op, name in enumerate(whole.op_names)}
    if reason := _difference(whole, graph, op_of):
        raise ValueError(f"plan: was made for another step: {reason}; place this one")
    ops = np.array([op_of[name] for name in graph.op_names], dtype=np.int64)
    position = np.argsort(plan.order)
    return ExecutionPlan(plan.devices, plan.device[ops], np.argsort(position[ops]).astype(np.int32), plan.form)


def _difference(whole: ComputationGraph, graph: ComputationGraph, op_of: dict[str, int]) -> str | None:
    """The first difference in words, or None. `op_of` are the ops of `whole` by name."""
    names = set(graph.op_names)
    if missing := [name for name in graph.op_names if name not in op_of]:
        return f"its graph has no op {missing[0]!r}"
    if more := [op for name, op in op_of.items() if name not in names and whole.phase[op] != "update"]:
        return f"op {whole.op_names[more[0]]!r} of its graph is not in this one"
    for op, name in enumerate(graph.op_names):
        theirs, ours = _described(whole, op_of[name]), _described(graph, op)
        if theirs != ours:
            return f"op {name!r} is {theirs} in its graph, and {ours} here"
    ops = np.array([op_of[name] for name in graph.op_names], dtype=np.int64)
    same = np.array_equal(_data(whole, _renumbered(ops, whole.num_ops)), _data(graph, np.arange(graph.num_ops)))
    return None if same else "ops of its graph have other inputs"


def _described(graph: ComputationGraph, op: int) -> str:
    """An op's kind and output sizes in words."""
    outputs = slice(graph.output_ptr[op], graph.output_ptr[op + 1])
    sizes = ", ".join(map(str, graph.output_bytes[outputs].tolist()))
    return f"{graph.kind[op]} of {sizes or 'no'} bytes"


def _renumbered(ops: Int64[np.ndarray, " part"], num_ops: int) -> Int64[np.ndarray, " ops"]:
    """The number that each op of the whole has in the part, -1 for an op outside it."""
    number = np.full(num_ops, -1, dtype=np.int64)
    number[ops] = np.arange(len(ops))
    return number


def _data(graph: ComputationGraph, number: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, "edges 3"]:
    """The data edges (source, output, consumer) between ops that have a number, in these numbers."""
    source, consumer = number[graph.edge_src], number[graph.edge_dst]
    kept = (source >= 0) & (consumer >= 0) & (graph.edge_output != CONTROL)
    return np.unique(np.stack([source, graph.edge_output, consumer], axis=1)[kept], axis=0)


class Outputs(NamedTuple):
    """The loss of each step so far, and the value of each variable after the last step."""

    losses: tuple[float, ...]
    variables: dict[str, np.ndarray]


class OpTimes(NamedTuple):
    """Start and end of every op in one step, in ns since the step began; -1 for an op that nothing executes."""

    start_ns: Int64[np.ndarray, " ops"]
    end_ns: Int64[np.ndarray, " ops"]


Allocation = tuple[int, int]  # the host's clock, and bytes (negative: freed)


def peak_bytes(events: Iterable[Allocation]) -> int:
    """The peak of the held bytes, relative to the beginning."""
    return max([0, *(held for _, held in held_bytes(events))])


def held_bytes(events: Iterable[Allocation]) -> Iterator[tuple[int, int]]:
    """The held bytes, relative to the beginning, after each event as `(time, bytes)`.

    At equal times frees precede allocations.
    """
    held = 0
    for time_ns, size in sorted(events):
        held += size
        yield time_ns, held


@runtime_checkable
class RunningStep(Protocol):
    """One placement on real devices, with its processes and memory. Its failures are MeasurementErrors."""

    def run(self, steps: int) -> list[int]:
        """Runs steps and returns their step times in ns; a step ends when all devices are done.

        PyTorch: from the start of the first device to the end of the last; on several hosts, the time of the slowest
        rank. TensorFlow: from the request to the reply, so messages to and from its servers count.
        """
        ...

    def outputs(self) -> Outputs:
        """The losses of the steps so far and the present values of the variables."""
        ...

    def op_times(self, steps: int) -> list[OpTimes]:
        """Runs steps and times every op. The timing slows the steps: take step times from `run`."""
        ...

    def peak_memory_bytes(self) -> list[int]:
        """Runs a step (two on the first call of some executors). Returns each device's peak memory in bytes: variables,
        buffers, workspace.

        Logical devices on one GPU share its memory, so each reports the peak of the whole GPU.
        """
        ...

    def described(self) -> list[str]:
        """The hardware of each device in words: a core, a GPU, or one of several logical devices on a GPU."""
        ...

    def close(self) -> None:
        """Stops its processes and frees its memory."""
        ...


@runtime_checkable
class Workload(Protocol):
    """The training step of one framework, loaded in this process."""

    @property
    def graph(self) -> ComputationGraph:
        """The graph of the step, whose ops a plan places, or those of another form of its micro-batches."""
        ...

    def start(self, plan: ExecutionPlan) -> RunningStep:
        """Places the step and starts its processes, with the same initial variables and inputs every time."""
        ...

    def as_run(self, plan: ExecutionPlan) -> ComputationGraph:
        """The graph whose simulation follows the executor: the same ops, in the plan's order on each device."""
        ...

    def unplaced(self, steps: int, kind: str = "cpu", form: Parallelism | None = None) -> tuple[Outputs, str]:
        """The same steps run by the framework itself on one device of kind `kind`, and a description of that device.

        Variables are those of the step in its `form`: each replica has its own.
        """
        ...

    def links(self, devices: tuple[Device, Device]) -> tuple[LinkSample, ...]:
        """Measured transfers from the first device to the second; if the two are alike, in either direction."""
        ...


LINK_SIZES_BYTES: Sequence[int] = tuple(2**k for k in range(8, 25, 2))
