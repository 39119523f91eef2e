"""A traced step: the times and devices of ops, the transfers, and the memory of each device.

Times are those of kernels, by the clock of this host. Tracing starts on one server after another, some milliseconds
apart, so starts on different devices are less certain than durations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from jaxtyping import Int64

from gnnplace.execution.control_edges import needed
from gnnplace.execution.tensorflow.in_place import in_place
from gnnplace.execution.workload import ExecutionPlan, OpTimes
from gnnplace.graph import CONTROL, NONE, ComputationGraph
from gnnplace.isolation.outcome import MeasurementError

SMALL_BYTES = 2**18  # another allocator of TensorFlow holds smaller tensors of cores; no statistics count its bytes


class RunTrace:
    """The run metadata (`FULL_TRACE`, `output_partition_graphs`) of one step. `devices` are TensorFlow's names."""

    def __init__(self, graph: ComputationGraph, devices: Sequence[str], metadata: tf.compat.v1.RunMetadata) -> None:
        self._graph, self._metadata = graph, metadata
        self._device = {name: d for d, name in enumerate(devices)}
        self._op = {name: i for i, name in enumerate(graph.op_names)}

    def check(self, plan: ExecutionPlan, more_edges: Sequence[tuple[int, int, int]]) -> None:
        """Raises MeasurementError if an op is on another device than the plan's, or if transfers differ from the cut.

        `more_edges` are edges `(op, output, op)` that the computation graph lacks.
        """
        device_of = {
            node.name: self._device.get(node.device) for graph in self._metadata.partition_graphs for node in graph.node
        }
        names = self._graph.op_names
        for i, name in enumerate(names):
            if name not in device_of:
                raise MeasurementError(
                    "unsupported", f"op {name!r} was not run as itself: removed by TensorFlow, or merged with another"
                )
            if device_of[name] != plan.device[i]:
                raise MeasurementError(
                    "crash", f"op {name!r} was put on {self._named(device_of[name])}, not on device {plan.device[i]}"
                )
        for i, d, _ in self.ran():
            if d != plan.device[i]:
                raise MeasurementError(
                    "crash", f"op {names[i]!r} ran on {self._named(d)}, not on device {plan.device[i]}"
                )
        expected, sent = Counter(cut(self._graph, plan, more_edges)), Counter(self.transfers())
        for (op, output, device), times in ((expected - sent) + (sent - expected)).items():
            what = "more often than" if sent[op, output, device] else "never sent, unlike"
            raise MeasurementError(
                "crash", f"{names[op]}:{output} to {plan.devices[device].name}: {times} times {what} on the cut"
            )

    def transfers(self) -> list[tuple[int, int, int]]:
        """`(op, output, destination device)` of every transfer of the step; an output of -1 is a control edge."""
        return [
            (src, output, dst) for graph in self._metadata.partition_graphs for src, output, dst in self._sends(graph)
        ]

    def op_times(self) -> OpTimes:
        """The start and end of each op, counted from the start of the first op."""
        start, end = (np.full(self._graph.num_ops, -1, dtype=np.int64) for _ in range(2))
        for i, _, node in self.ran():
            start[i] = node.all_start_nanos + node.op_start_rel_nanos
            end[i] = node.all_start_nanos + node.op_end_rel_nanos
        first = start[start >= 0].min()
        return OpTimes(np.where(start >= 0, start - first, -1), np.where(start >= 0, end - first, -1))

    def peak_memory_bytes(self, plan: ExecutionPlan, recorded: Mapping[int, Sequence[tuple[int, int]]]) -> list[int]:
        """The peak memory of each device's tensors: variables, buffers, workspace. `recorded` are the records of cores.

        Statistics give the bytes in use when an allocating op ends, and count all bytes that the allocator gave. Both
        miss the small tensors of a core, which another allocator holds (`_small`). TensorFlow reports nothing of a
        device whose ops don't allocate: its variables count.
        """
        peak = np.bincount(plan.device, self._graph.persistent_bytes, len(plan.devices)).astype(int).tolist()
        ended, graph = self._ended(), in_place(self._graph, plan.device, plan.order)
        held: list[list[tuple[int, int]]] = [[(0, -1)] for _ in plan.devices]  # (bytes in use, time)
        for i, d, node in self.ran():
            held[d] += [(memory.allocator_bytes_in_use, int(ended[i])) for memory in node.memory if d not in recorded]
        for d, device in enumerate(plan.devices):
            small = self._small(graph, plan, ended, d) if device.kind == "cpu" else lambda time_ns: 0
            if d in recorded:
                since, large = np.array(recorded[d], dtype=np.int64).T
                times = np.union1d(since[1:], ended[(plan.device == d) & (ended >= 0)])
                held[d] += zip(
                    large[np.searchsorted(since, times, side="right") - 1].tolist(), times.tolist(), strict=True
                )
            peak[d] = max(peak[d], *(large + small(time_ns) for large, time_ns in held[d]))
        return peak

    def _ended(self) -> Int64[np.ndarray, " ops"]:
        """The end of each op, -1 for one that did not run."""
        end = np.full(self._graph.num_ops, -1, dtype=np.int64)
        for i, _, node in self.ran():
            end[i] = node.all_start_nanos + node.op_end_rel_nanos
        return end

    def _small(
        self, graph: ComputationGraph, plan: ExecutionPlan, ended: Int64[np.ndarray, " ops"], d: int
    ) -> Callable[[int], int]:
        """The bytes of small tensors on a core as a function of time.

        They are its variables, and each output from the end of its op to the end of its last consumer.
        """
        variables = graph.persistent_bytes[plan.device == d]
        data = np.flatnonzero(graph.edge_data != NONE)
        edges = data[plan.device[graph.edge_dst[data]] == d]
        outputs = np.flatnonzero(plan.device[graph.output_op] == d)
        root = np.concatenate([graph.output_root[graph.edge_data[edges]], graph.output_root[outputs]])
        used = np.concatenate([ended[graph.edge_dst[edges]], ended[graph.output_op[outputs]]])
        last = np.full(len(graph.output_bytes), -1, dtype=np.int64)
        np.maximum.at(last, root, used)
        held = np.flatnonzero((last >= 0) & (graph.output_bytes < SMALL_BYTES))
        size, first = graph.output_bytes[held], ended[graph.output_op[held]]
        always = int(variables[variables < SMALL_BYTES].sum())
        return lambda now: always + int(size[(first <= now) & (now <= last[held])].sum())

    def ran(self) -> Iterator[tuple[int, int, tf.compat.v1.NodeExecStats]]:
        """Each op that ran, its device, and TensorFlow's statistics of it."""
        for stats in self._metadata.step_stats.dev_stats:
            if stats.device in self._device:
                for node in stats.node_stats:
                    if node.node_name in self._op:
                        yield self._op[node.node_name], self._device[stats.device], node

    def _sends(self, graph: tf.compat.v1.GraphDef) -> Iterator[tuple[int, int, int]]:
        """The transfers `(op, output, destination device)` that one device sends."""
        nodes = {node.name: node for node in graph.node}
        for node in graph.node:
            if (
                node.op in ("_Send", "_HostSend")
                and (dst := self._device.get(node.attr["recv_device"].s.decode())) is not None
            ):
                src, _, output = node.input[0].partition(":")
                if src in self._op:
                    yield self._op[src], int(output or 0), dst
                else:  # control: an empty constant that waits for the op
                    yield self._op[_waited_for(nodes, src)], CONTROL, dst

    def _named(self, d: int | None) -> str:
        """TensorFlow's name of a device."""
        return next((name for name, number in self._device.items() if number == d), "another device")


def cut(
    graph: ComputationGraph, plan: ExecutionPlan, more_edges: Sequence[tuple[int, int, int]] = ()
) -> set[tuple[int, int, int]]:
    """The transfers that a plan needs, `(op, output or -1, destination device)`: one for all consumers of a device.

    Control edges that others imply need none.
    """
    kept = needed(graph, plan.device, plan.order)
    edges = zip(*(column[kept].tolist() for column in (graph.edge_src, graph.edge_output, graph.edge_dst)), strict=True)
    return {
        (src, output, int(plan.device[dst]))
        for src, output, dst in (*edges, *more_edges)
        if plan.device[src] != plan.device[dst]
    }


def _waited_for(nodes: Mapping[str, tf.compat.v1.NodeDef], name: str) -> str:
    """The op that a constant waits for."""
    return nodes[name].input[0].removeprefix("^")
