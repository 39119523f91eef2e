"""Which tensors of a trace share a buffer, and what order and company writing in place demands.

Fake tensors carry storages as real ones do, so sharing is read off the trace itself, not off schemas. Promises: who
writes a buffer in place follows everyone who read it, and everyone who reads it later follows the writer, by control
edges where no path says so already; and the writer stands with the op that owns the buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from gnnplace.graph import CONTROL

Ref = tuple[int, int]  # (op, output)
Edge = tuple[int, int, int]
# candidates that NumPy tries before it gives up on whether two strided tensors have a byte in common
MOST_WORK = 100_000


@dataclass
class _Storage:
    owner: int
    readers: list[int] = field(default_factory=list)
    writes: list[tuple[int, Tensor]] = field(default_factory=list)

    @property
    def writer(self) -> int | None:
        """The last."""
        return self.writes[-1][0] if self.writes else None


class CapturedBuffers:
    """Grows with the graph: ops are added in the order of the step."""

    def __init__(self) -> None:
        self.edges: set[Edge] = set()
        self._storages: dict[int, _Storage] = {}
        self._ancestors: list[int] = []  # bit sets, the op itself included
        self._company: list[int] = []  # union-find over ops

    def add(self, inputs: Iterable[Ref]) -> int:
        """A new op that consumes these outputs; returns its index."""
        op = len(self._ancestors)
        self._ancestors.append(1 << op)
        self._company.append(op)
        for source, output in inputs:
            self._edge(source, output, op)
        return op

    def own(self, op: int, tensors: Iterable[Tensor]) -> None:
        """Notes the op's outputs; the first op that shows a storage owns it."""
        for tensor in tensors:
            self._storages.setdefault(storage_of(tensor), _Storage(op))

    def take(self, op: int, sources: Mapping[Ref, Tensor]) -> None:
        """An op, a view too, takes these outputs: one that was written since
        it was made is as it is now only where its owner stands.
        """
        for (source, _), tensor in sources.items():
            if held := self._storages.get(storage_of(tensor)):
                for writer in [
                    writer for writer, written in held.writes if writer > source and overlap(tensor, written)
                ]:
                    self._follow(op, writer)
                    self.together(held.owner, op)

    def read(self, op: int, tensors: Iterable[Tensor]) -> None:
        """A kernel reads these tensors: after the last write to their storages."""
        for storage in {storage_of(tensor): None for tensor in tensors}:
            if storage in self._storages:
                self._follow(op, self._storages[storage].writer)
                self._storages[storage].readers.append(op)

    def write(self, op: int, tensors: Iterable[Tensor]) -> None:
        """A kernel changes these tensors in place: after every earlier reader, and where their owner stands."""
        for tensor in tensors:
            if held := self._storages.get(storage_of(tensor)):
                for reader in held.readers:
                    self._follow(op, reader)
                held.readers = []
                held.writes.append((op, tensor))
                self.together(held.owner, op)

    def together(self, first: int, second: int) -> None:
        """The two ops share a device; a group is known by its earliest op."""
        low, high = sorted((self.group(first), self.group(second)))
        self._company[high] = low

    def group(self, op: int) -> int:
        """The earliest op of the op's colocation group."""
        while self._company[op] != op:
            op = self._company[op]
        return op

    def _follow(self, op: int, earlier: int | None) -> None:
        if earlier is not None and not self._ancestors[op] >> earlier & 1:
            self._edge(earlier, CONTROL, op)

    def _edge(self, source: int, output: int, op: int) -> None:
        self.edges.add((source, output, op))
        self._ancestors[op] |= self._ancestors[source]


def shares(tensor: Tensor, other: Tensor) -> bool:
    """Whether two tensors lie in one storage."""
    return storage_of(tensor) == storage_of(other)


def storage_of(tensor: Tensor) -> int:
    """The number of a tensor's storage, as long as that lives."""
    return int(tensor.untyped_storage()._cdata)


def view_of(tensor: Tensor) -> tuple[object, ...]:
    """The bytes that a tensor shows of its storage, and how it reads them:
    a lazy conjugate is another view of the same bytes.
    """
    read = (tensor.dtype, tensor.is_conj(), tensor.is_neg())
    return (storage_of(tensor), tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()), *read)


def same_view(tensor: Tensor, other: Tensor) -> bool:
    """Whether two tensors are one."""
    return view_of(tensor) == view_of(other)


def overlap(tensor: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one storage have a byte in common; yes where that is too hard to say.

    >>> rows = torch.zeros(4, 6)
    >>> overlap(rows[:, :3], rows[:, 3:]), overlap(rows[:, :3], rows[1])
    (False, True)
    """
    try:
        arrays = _Extent(tensor).array, _Extent(other).array
        return np.shares_memory(*arrays, max_work=MOST_WORK)  # type: ignore[arg-type]  # stubs know its two names alone
    except np.exceptions.TooHardError:
        return True


class _Extent:
    """Where a tensor lies in its storage, as NumPy reads it of foreign
    memory; at made-up addresses, which nobody opens.
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
