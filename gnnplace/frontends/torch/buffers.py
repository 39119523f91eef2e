"""Which tensors of a trace share a buffer, and what order and company writing in place demands.

Fake tensors carry storages as real ones do, so sharing is read off the trace itself, not off schemas. Promises: who
writes a buffer in place follows everyone who read it, and everyone who reads it later follows the writer, by control
edges where no path says so already; and the writer stands with the op that owns the buffer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor

from gnnplace.graph import CONTROL

Ref = tuple[int, int]  # (op, output)
Edge = tuple[int, int, int]


@dataclass
class _Storage:
    owner: int
    writer: int | None = None
    readers: list[int] = field(default_factory=list)


class Buffers:
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
            self._storages.setdefault(_storage(tensor), _Storage(op))

    def read(self, op: int, tensors: Iterable[Tensor]) -> None:
        """A kernel reads these tensors: after the last write to their storages."""
        for storage in {_storage(tensor): None for tensor in tensors}:
            if storage in self._storages:
                self._follow(op, self._storages[storage].writer)
                self._storages[storage].readers.append(op)

    def write(self, op: int, tensors: Iterable[Tensor]) -> None:
        """A kernel changes these tensors in place: after every earlier reader, and where their owner stands."""
        for storage in {_storage(tensor): None for tensor in tensors}:
            if storage in self._storages:
                held = self._storages[storage]
                for reader in held.readers:
                    self._follow(op, reader)
                held.writer, held.readers = op, []
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
    return _storage(tensor) == _storage(other)


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
