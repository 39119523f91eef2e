"""A placed TensorFlow step on its servers: it loads variables, checks what TensorFlow runs, and runs steps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import tensorflow as tf

from gnnplace.execution.tensorflow.graph import EXTRA, incarnations
from gnnplace.execution.tensorflow.servers import Server, Template, signal_name
from gnnplace.execution.tensorflow.session import failures, placed_session, task_of
from gnnplace.execution.tensorflow.trace import RunTrace
from gnnplace.execution.workload import ExecutionPlan, OpTimes, Outputs
from gnnplace.graph import ComputationGraph
from gnnplace.isolation.linux import processor_ns
from gnnplace.isolation.outcome import MeasurementError

v1 = tf.compat.v1

MAX_MESSAGE_BYTES = 2**29  # gRPC refuses 2 GiB
DEATH_S = 2.0  # after an error, until the end of a dead server is known


@dataclass(eq=False)
class PlacedTensorFlowStep:
    """A step on servers. Every run counts as a step, also a traced one and the first, which `check` runs."""

    computation: ComputationGraph
    plan: ExecutionPlan
    devices: tuple[str, ...]  # TensorFlow's names
    loss: str
    train: str
    graph: tf.compat.v1.GraphDef
    template: Template
    servers: tuple[Server, ...]
    _losses: list[float] = field(default_factory=list)

    def load(self, values: Mapping[str, np.ndarray]) -> None:
        """Gives every variable its value.

        First each core's allocator reserves addresses for the whole step in one piece (`room_bytes`). If it grew by
        small pieces, tensors would leave remainders in them that fit no other tensor and count as used. It writes to a
        32nd of the piece; if the host refuses the piece, the allocator works without it.
        """
        with self._failures():
            with suppress(tf.errors.ResourceExhaustedError):
                self._session.run(
                    [self._session.graph.get_operation_by_name(f"{EXTRA}/room/{d}") for d in range(len(self.devices))]
                )
            for part in _parts(values):
                session, feed = self._session, {f"{EXTRA}/value/{name}:0": values[name] for name in part}
                session.run([session.graph.get_operation_by_name(f"{EXTRA}/assign/{name}") for name in part], feed)

    def check(self, more_edges: Sequence[tuple[int, int, int]]) -> None:
        """Runs the first step. Raises MeasurementError if TensorFlow did not run the plan."""
        self.trace(partitions=True).check(self.plan, more_edges)

    def run(self, steps: int) -> list[int]:
        """Runs steps. Returns the ns of each in this process: from the request until the loss is known."""
        times = []
        with self._failures():
            step = self._callable
            for _ in range(steps):
                begin = time.perf_counter_ns()
                loss, *_ = step()
                times.append(time.perf_counter_ns() - begin)
                self._losses.append(float(loss))
        return times

    def outputs(self) -> Outputs:
        """The losses of all steps so far and the present variables (slots included), by the name of their op."""
        held = {
            name: int(size)
            for name, size in zip(self.computation.op_names, self.computation.persistent_bytes, strict=True)
            if size
        }
        variables: dict[str, np.ndarray] = {}
        with self._failures():
            for part in _parts(held):
                variables |= zip(part, self._session.run([f"{EXTRA}/read/{name}:0" for name in part]), strict=True)
        return Outputs(tuple(self._losses), variables)

    def op_times(self, steps: int) -> list[OpTimes]:
        """The times of ops in TensorFlow's step statistics."""
        self._require_cpus("times of ops")
        return [self.trace().op_times() for _ in range(steps)]

    def peak_memory_bytes(self) -> list[int]:
        """The peak memory of each device's tensors in one step: recorded on cores, by step statistics on GPUs."""
        cores = [d for d, device in enumerate(self.plan.devices) if device.kind == "cpu"]
        with self.template.recording(self.servers[: len(cores)]) as recorded:
            trace = self.trace()
        return trace.peak_memory_bytes(self.plan, dict(zip(cores, recorded, strict=True)))

    def processor_ns(self) -> int:
        """The processor time that the servers of this step have used since their start."""
        return sum(processor_ns(server.pid) for server in self.servers)

    def described(self) -> list[str]:
        """TensorFlow's name of each device."""
        return list(self.devices)

    def close(self) -> None:
        """Ends the servers of this step, which frees their memory."""
        if (session := self.__dict__.pop("_session", None)) is not None:
            with suppress(tf.errors.OpError):  # a server may be dead
                session.close()
        self.template.stop(self.servers)

    @cached_property
    def _session(self) -> tf.compat.v1.Session:
        graph = tf.Graph()
        session = placed_session(graph, [server.address for server in self.servers])
        incarnations(self.graph, {device.name: device.incarnation for device in session.list_devices()})
        with graph.as_default():
            tf.graph_util.import_graph_def(self.graph, name="")
        return session

    @cached_property
    def _fetches(self) -> list[tf.Tensor | tf.Operation]:
        done = [node.name for node in self.graph.node if node.name.startswith(f"{EXTRA}/done/")]
        return [self._session.graph.as_graph_element(name) for name in (self.loss, self.train, *done)]

    @cached_property
    def _callable(self):  # type: ignore[no-untyped-def]  # TensorFlow has no name for it
        return self._session.make_callable(self._fetches)

    def trace(self, partitions: bool = False) -> RunTrace:
        """Runs a step and returns TensorFlow's statistics of it; with `partitions` also the graph of each device."""
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=partitions)
        metadata = v1.RunMetadata()
        with self._failures():
            loss, *_ = self._session.run(self._fetches, options=options, run_metadata=metadata)
        self._losses.append(float(loss))
        return RunTrace(self.computation, self.devices, metadata)

    def _require_cpus(self, what: str) -> None:
        """Raises MeasurementError(unsupported) if a device is no CPU."""
        for device in self.plan.devices:
            if device.kind != "cpu":
                raise MeasurementError(
                    "unsupported", f"{what} on {device.name}: step statistics of a {device.kind} hold launches"
                )

    def _failures(self) -> AbstractContextManager[None]:
        return failures(self._dead_server, self._device_of)

    def _dead_server(self) -> str | None:
        """Which server has ended and how, in words; None if all are alive."""
        for task, server in enumerate(self.servers):
            if (code := self.template.exit_code(server, DEATH_S / len(self.servers))) is not None:
                return f"the server of {', '.join(self._devices_of_server(task))} ended with {signal_name(code)}"
        return None

    def _devices_of_server(self, task: int) -> list[str]:
        """The names of the plan's devices that a server holds."""
        devices = zip(self.plan.devices, self.devices, strict=True)
        return [device.name for device, name in devices if task_of(name) == task]

    def _device_of(self, op: str) -> str:
        """The name of an op's device in the plan."""
        names = self.computation.op_names
        return self.plan.devices[self.plan.device[names.index(op)]].name if op in names else "its device"


def _parts(values: Mapping[str, np.ndarray] | Mapping[str, int]) -> Iterator[list[str]]:
    """The names in parts whose values fit one message; a value that is larger is a part by itself."""
    part: list[str] = []
    room = 0
    for name, value in values.items():
        size = value if isinstance(value, int) else value.nbytes
        if part and size > room:
            yield part
            part = []
        room = (room if part else MAX_MESSAGE_BYTES) - size
        part.append(name)
    if part:
        yield part
