"""The buffers that tensors of a trace share, and the order and colocation that writes in place need.

Fake tensors have storages as real ones do, so the trace itself tells which tensors share a buffer; schemas are not
needed. An op that writes a buffer in place follows all earlier readers, and all later readers follow it, by control
edges unless there is a path already. The writer is colocated with the op that owns the buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from gnnplace.graph import CONTROL

Ref = tuple[int, int]  # (op, output)
Edge = tuple[int, int, int]
MOST_WORK = 100_000  # candidates that NumPy tries to find a byte that two strided tensors share


@dataclass
class _Storage:
    owner: int
    readers: list[int] = field(default_factory=list)
    writes: list[tuple[int, Tensor]] = field(default_factory=list)

    @property
    def writer(self) -> int | None:
        """The last op that has written."""
        return self.writes[-1][0] if self.writes else None


class CapturedBuffers:
    """Edges and colocation groups of a graph that grows op by op, in the order of the step."""

    def __init__(self) -> None:
        self.edges: set[Edge] = set()
        self._storages: dict[int, _Storage] = {}
        self._ancestors: list[int] = []  # bit sets, each with the op itself
        self._leader: list[int] = []  # union-find of colocated ops

    def add(self, inputs: Iterable[Ref]) -> int:
        """Adds an op that consumes these outputs; returns its index."""
        op = len(self._ancestors)
        self._ancestors.append(1 << op)
        self._leader.append(op)
        for source, output in inputs:
            self._edge(source, output, op)
        return op

    def add_outputs(self, op: int, tensors: Iterable[Tensor]) -> None:
        """Notes the op's outputs; the first op with an output in a storage owns it."""
        for tensor in tensors:
            self._storages.setdefault(storage_of(tensor), _Storage(op))

    def use(self, op: int, sources: Mapping[Ref, Tensor]) -> None:
        """Notes that an op, perhaps a view, uses these outputs.

        If one has been written in place since it was computed, only the owner's device has its present value.
        """
        for (source, _), tensor in sources.items():
            if storage := self._storages.get(storage_of(tensor)):
                for writer in [
                    writer for writer, written in storage.writes if writer > source and overlap(tensor, written)
                ]:
                    self._follow(op, writer)
                    self.colocate(storage.owner, op)

    def read(self, op: int, tensors: Iterable[Tensor]) -> None:
        """Notes that a kernel reads these tensors: it follows the last write to their storages."""
        for storage in {storage_of(tensor): None for tensor in tensors}:
            if storage in self._storages:
                self._follow(op, self._storages[storage].writer)
                self._storages[storage].readers.append(op)

    def write(self, op: int, tensors: Iterable[Tensor]) -> None:
        """Notes that a kernel writes these tensors in place: it follows every earlier reader and joins their owner."""
        for tensor in tensors:
            if storage := self._storages.get(storage_of(tensor)):
                for reader in storage.readers:
                    self._follow(op, reader)
                storage.readers = []
                storage.writes.append((op, tensor))
                self.colocate(storage.owner, op)

    def colocate(self, first: int, second: int) -> None:
        """Puts two ops, and all that are colocated with them, into one group."""
        low, high = sorted((self.group(first), self.group(second)))
        self._leader[high] = low

    def group(self, op: int) -> int:
        """The earliest op of the op's colocation group."""
        while self._leader[op] != op:
            op = self._leader[op]
        return op

    def _follow(self, op: int, earlier: int | None) -> None:
        if earlier is not None and not self._ancestors[op] >> earlier & 1:
            self._edge(earlier, CONTROL, op)

    def _edge(self, source: int, output: int, op: int) -> None:
        self.edges.add((source, output, op))
        self._ancestors[op] |= self._ancestors[source]


def shares(tensor: Tensor, other: Tensor) -> bool:
    """Whether two tensors share a storage."""
    return storage_of(tensor) == storage_of(other)


def storage_of(tensor: Tensor) -> int:
    """The id of a tensor's storage, unique while the storage lives."""
    return int(tensor.untyped_storage()._cdata)


def view_of(tensor: Tensor) -> tuple[object, ...]:
    """The part of its storage that a tensor shows, and how it reads it; a lazy conjugate is another view."""
    reading = (tensor.dtype, tensor.is_conj(), tensor.is_neg())
    return (storage_of(tensor), tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()), *reading)


def same_view(tensor: Tensor, other: Tensor) -> bool:
    """Whether two tensors are the same view of one storage."""
    return view_of(tensor) == view_of(other)


def overlap(tensor: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one storage have a byte in common; True if that is too hard to decide.

    >>> import torch
    >>> rows = torch.zeros(4, 6)
    >>> overlap(rows[:, :3], rows[:, 3:]), overlap(rows[:, :3], rows[1])
    (False, True)
    """
    try:
        arrays = _Extent(tensor).array, _Extent(other).array
        return np.shares_memory(*arrays, max_work=MOST_WORK)  # type: ignore[arg-type]  # its stub lacks numbers
    except np.exceptions.TooHardError:
        return True


class _Extent:
    """The place of a tensor in its storage, in the form in which NumPy describes foreign memory.

    The address is arbitrary and never read.
    """

    def __init__(self, tensor: Tensor) -> None:
        size = tensor.element_size()
        strides = tuple(stride * size for stride in tensor.stride())
        data = (1 << 40) + tensor.storage_offset() * size, True
        self.__array_interface__ = {
            "version": 3, "shape": tuple(tensor.shape), "typestr": f"|V{size}", "strides": strides, "data": data
        }  # fmt: skip

    @property
    def array(self) -> np.ndarray:
        """An array without readable elements."""
        return np.asarray(self)
