"""What the step of several micro-batches adds to the calls of one, as calls: sums, means, rows joined, rings, fetches.

Each op of docs/execution-model.md#copies, #rings and #fetches that is no copy becomes one call here. A ring adds chunks
of the buffer that holds a bucket's gradients, in place where the chunk stands on the device that adds to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import getitem
from typing import NamedTuple

import torch
from torch import Tensor

from gnnplace.execution.torch.values import Node
from gnnplace.frontends.torch.buffers import Ref
from gnnplace.graph import NONE, ComputationGraph

_aten = torch.ops.aten


class Made(NamedTuple):
    """An output of an op that was added: its node, and what of one micro-batch it stands for.

    `of` is an output of the graph of one micro-batch; of the buffers and chunks of a ring, the outputs of all gradients
    in the bucket, and `chunk` is the chunk's place: its number and, in a ring across nodes, that of its part.
    """

    node: Node
    of: tuple[Ref, ...]
    chunk: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Gathered:
    """Adds the calls of ops that are no copies to the trace of a step of several micro-batches.

    `call(target, arguments, like, val)` adds one with the scope of the node `like`; `value(ref)` is the node of an
    output of a copy.
    """

    graph: ComputationGraph
    call: Callable[..., Node]
    value: Callable[[Ref], Node]
    made: Mapping[Ref, Made]

    def add(self, op: int, reads: Sequence[Ref], in_place: bool) -> list[Made]:
        """The outputs of an op that reads these; a sum writes to the buffer of its alias where it may be `in_place`."""
        match self.graph.kind[op], len(reads), self._num_outputs(op):
            case "fetch", 1, _:
                return [self._same(reads[0])]
            case "sum", 1, _:
                return [self._mean(reads[0])]
            case "sum", 2, _:
                return [self._sum(op, reads, in_place)]
            case "concat", _, _:
                return [self._flat(reads) if len({self.of(ref) for ref in reads}) == len(reads) else self._rows(reads)]
            case "view", 1, 1:
                return [self._same(reads[0])]
            case "view", 1, number:
                return self._chunks(reads[0], number)
            case _:
                return self._reduced(reads)

    def of(self, ref: Ref) -> tuple[Ref, ...]:
        """What an output stands for: of a copy, the output that it is a copy of."""
        if ref in self.made:
            return self.made[ref].of
        copies = self.graph.copies
        assert copies is not None
        return ((int(copies.source[ref[0]]), ref[1]),)

    def node(self, ref: Ref) -> Node:
        """The node of an output."""
        return self.made[ref].node if ref in self.made else self.value(ref)

    def _same(self, ref: Ref) -> Made:
        """What a fetch sends, or a hop has received."""
        node, chunk = self.node(ref), self.made[ref].chunk if ref in self.made else ()
        return Made(self.call(_aten.alias.default, (node,), node), self.of(ref), chunk)

    def _mean(self, ref: Ref) -> Made:
        """The loss of a micro-batch, divided by their number."""
        loss = self.node(ref)
        return Made(self.call(_aten.div.Tensor, (loss, self.graph.micro_batches), loss), self.of(ref))

    def _sum(self, op: int, reads: Sequence[Ref], in_place: bool) -> Made:
        alias = int(self.graph.output_alias[self.graph.output_ptr[op]])
        ours = next((ref for ref in reads if self._number(ref) == alias), reads[0])
        (other,) = (ref for ref in reads if ref != ours)
        total, target = self.node(ours), _aten.add_.Tensor if in_place and alias != NONE else _aten.add.Tensor
        chunk = self.made[ours].chunk if ours in self.made else ()
        return Made(self.call(target, (total, self.node(other)), total), self.of(ours), chunk)

    def _rows(self, reads: Sequence[Ref]) -> Made:
        """The rows of all micro-batches, in their order."""
        copies = self.graph.copies
        assert copies is not None
        nodes = [self.node(ref) for ref in sorted(reads, key=lambda ref: copies.micro_batch[ref[0]])]
        return Made(self.call(_aten.cat.default, (nodes,), nodes[0]), self.of(reads[0]))

    def _flat(self, reads: Sequence[Ref]) -> Made:
        """A bucket's gradients in one buffer, in the order in which they are ready."""
        copies = self.graph.copies
        assert copies is not None
        level, ptr = copies.original.level, copies.original.output_ptr

        def ready(ref: Ref) -> tuple[int, int]:
            ((op, output),) = self.of(ref)
            return int(level[op]), int(ptr[op]) + output

        ordered = sorted(reads, key=ready)
        nodes = [self.node(ref) for ref in ordered]
        of = tuple(each for ref in ordered for each in self.of(ref))
        return Made(self.call(flat, (nodes,), nodes[0]), of)

    def _chunks(self, ref: Ref, number: int) -> list[Made]:
        node, within = self.node(ref), self.made[ref].chunk if ref in self.made else ()
        cut, of = self.call(chunks, (node, number), node), self.of(ref)
        return [Made(self.call(getitem, (cut, place), cut), of, (*within, place)) for place in range(number)]

    def _reduced(self, reads: Sequence[Ref]) -> list[Made]:
        """The parts of a chunk joined or, of all chunks, the gradients."""
        ordered = sorted(reads, key=lambda ref: self.made[ref].chunk)
        parts, first = [self.made[ref].node for ref in ordered], self.made[ordered[0]]
        if len(first.chunk) > 1:
            return [Made(self.call(_aten.cat.default, (parts,), parts[0]), first.of, first.chunk[:1])]
        shapes = [self._shape(ref) for ref in first.of]
        cut = self.call(gradients, (parts, shapes), parts[0])
        return [Made(self.call(getitem, (cut, place), cut), (of,)) for place, of in enumerate(first.of)]

    def _shape(self, ref: Ref) -> list[int]:
        copies = self.graph.copies
        assert copies is not None
        shape = copies.original.shape(int(copies.original.output_ptr[ref[0]]) + ref[1])
        assert shape is not None  # a trace knows its shapes
        return list(shape)

    def _number(self, ref: Ref) -> int:
        return int(self.graph.output_ptr[ref[0]]) + ref[1]

    def _num_outputs(self, op: int) -> int:
        return int(self.graph.output_ptr[op + 1] - self.graph.output_ptr[op])


def flat(gradients: Sequence[Tensor]) -> Tensor:
    """All elements of the gradients of a bucket in one buffer."""
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def chunks(buffer: Tensor, number: int) -> tuple[Tensor, ...]:
    """A buffer in so many runs of elements as equal as possible: views of it, where its elements lie in order."""
    return torch.tensor_split(buffer.reshape(-1), number)


def gradients(parts: Sequence[Tensor], shapes: Sequence[Sequence[int]]) -> tuple[Tensor, ...]:
    """The gradients of a bucket from the chunks of its buffer."""
    whole, start, cut = torch.cat(list(parts)), 0, []
    for shape in shapes:
        size = torch.Size(shape).numel()
        cut.append(whole[start : start + size].view(torch.Size(shape)))
        start += size
    return tuple(cut)


def added(*scalars: Tensor) -> Tensor:
    """The sum of scalars of several micro-batches."""
    return sum(scalars[1:], scalars[0])
