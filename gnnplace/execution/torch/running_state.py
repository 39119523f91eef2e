"""Running state of micro-batches that stand on several devices: each writes it where it is, and sends it to the next.

The forward pass of a micro-batch updates running state, such as the running means of a batch normalization, after that
of the micro-batch before (docs/execution-model.md#copies). With free copies both may stand on other devices than the
state: what one has written is sent to the devices where the next one reads it, and what the last one has written to the
state's own. These few bytes are not in the model, where a control edge keeps the order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gnnplace.execution.torch.values import Node
from gnnplace.execution.workload import ExecutionPlan
from gnnplace.frontends.torch.buffers import Ref
from gnnplace.frontends.torch.builder import TracedStep
from gnnplace.graph import CONTROL, NONE, ComputationGraph, Copies
from gnnplace.isolation.outcome import MeasurementError


class Passed(NamedTuple):
    """State that is sent to device `dst` when op `writer` has written it, before op `reader` reads it there.

    `node` is its value as the step holds it. `reader` is `NONE` where it only returns to its own device.
    """

    node: Node
    writer: int
    reader: int
    dst: int


def passed(step: TracedStep, plan: ExecutionPlan) -> list[Passed]:
    """The running state that a step sends. Raises MeasurementError(unsupported) where another device reads a view."""
    copies = step.graph.copies
    return [] if copies is None else list(_Passing(step, plan, copies).all())


class _Passing:
    def __init__(self, step: TracedStep, plan: ExecutionPlan, copies: Copies) -> None:
        self._graph: ComputationGraph = step.graph
        self._copies, self._device, self._written = copies, plan.device, step.written
        self._position = np.argsort(plan.order)
        self._held = {
            int(self._graph.output_root[self._graph.output_ptr[op]]): (op, node)
            for node, op in step.op_of.items()
            if node.op == "placeholder" and self._graph.kind[op] == "read"
        }

    def all(self) -> Iterator[Passed]:
        """What is sent of each state."""
        for (op, output), writers in self._written.items():
            held = self._held.get(int(self._graph.output_ptr[op]) + output)
            by_micro_batch: dict[int, int] = {}
            for writer in sorted(writers, key=self._position.__getitem__):
                by_micro_batch[int(self._copies.micro_batch[writer])] = writer
            if held is None or NONE in by_micro_batch:  # updated once a step
                continue
            turns = sorted(by_micro_batch.values(), key=self._position.__getitem__)
            to_next = [each for writer in turns for each in self._to_next((op, output), *held, writer)]
            yield from self._newer(turns, to_next)
            if (home := int(self._device[op])) != self._device[turns[-1]]:
                yield Passed(held[1], turns[-1], NONE, home)

    def _newer(self, turns: Sequence[int], sent: Sequence[Passed]) -> Iterator[Passed]:
        """What brings a device newer state than it has: a backward pass may come after a later micro-batch there."""
        version, has = {writer: turn for turn, writer in enumerate(turns)}, dict[int, int]()
        for op, each in sorted(
            [*((each.reader, each) for each in sent), *((writer, None) for writer in turns)],
            key=lambda event: (self._position[event[0]], event[1] is None),
        ):
            if each is None:
                has[int(self._device[op])] = version[op]
            elif has.get(each.dst, NONE) < version[each.writer]:
                has[each.dst] = version[each.writer]
                yield each

    def _to_next(self, root: Ref, read: int, node: Node, writer: int) -> Iterator[Passed]:
        """From the last op of a micro-batch that writes a state to those of the next one that read it elsewhere."""
        graph, micro_batch = self._graph, self._copies.micro_batch
        edges = np.arange(graph.out_ptr[writer], graph.out_ptr[writer + 1])
        after = graph.edge_dst[edges[graph.edge_output[edges] == CONTROL]]
        after = after[(micro_batch[after] != NONE) & (micro_batch[after] != micro_batch[writer])]
        readers: dict[int, int] = {}
        for op in sorted(after.tolist(), key=self._position.__getitem__, reverse=True):
            if self._device[op] != self._device[writer] and self._reads(root, read, op):
                readers[int(self._device[op])] = op
        yield from (Passed(node, writer, reader, dst) for dst, reader in sorted(readers.items()))

    def _reads(self, root: Ref, read: int, op: int) -> bool:
        """Whether an op reads a state, which it does as the step holds it."""
        graph = self._graph
        edges = graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]
        data = edges[graph.edge_output[edges] != CONTROL]
        number = int(graph.output_ptr[root[0]]) + root[1]
        sources = graph.edge_src[data[graph.output_root[graph.edge_data[data]] == number]].tolist()
        if odd := [source for source in sources if source != read and self._copies.micro_batch[source] == NONE]:
            raise MeasurementError(
                "unsupported",
                f"op {graph.op_names[op]!r} reads {graph.op_names[odd[0]]!r}, a view of running state that another "
                "device writes; place it with copies together",
            )
        return read in sources
