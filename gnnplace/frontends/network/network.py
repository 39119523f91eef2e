"""A network as its file describes it, once shapes are known: plain records of values and nodes, whatever the format."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnnplace.graph import MAX_BYTES

# The bits of an element. A string is its header of 24 bytes: what it points to is not known before the step.
BITS: dict[str, int] = {
    "float64": 64, "float32": 32, "bfloat16": 16, "float16": 16, "float8_e4m3fn": 8, "float8_e4m3fnuz": 8,
    "float8_e5m2": 8,
    "float8_e5m2fnuz": 8, "float8_e8m0": 8, "float6_e2m3": 6, "float6_e3m2": 6, "float4_e2m1": 4, "nf4": 4,
    "int64": 64, "int32": 32, "int16": 16, "int8": 8, "int4": 4, "int2": 2,
    "uint64": 64, "uint32": 32, "uint16": 16, "uint8": 8, "uint6": 6, "uint4": 4, "uint3": 3, "uint2": 2, "uint1": 1,
    "bool": 8, "complex64": 64, "complex128": 128, "string": 192,
}  # fmt: skip
MAX_RANK = 256


@dataclass(frozen=True, slots=True)
class Tensor:
    """The type of a value: its full shape and its dtype, one of `BITS`."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return -(-self.elements * BITS[self.dtype] // 8)

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its kind has the domain before it unless that is the
    format's own; absent inputs and outputs are named "".
    """

    name: str
    kind: str
    layer: str | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]  # integers, lists of them, and text


@dataclass(frozen=True, slots=True)
class Network:
    """Nodes in topological order; the names of values, each made once;
    and their types, but for outputs that nobody reads.
    """

    inputs: tuple[str, ...]
    initializers: tuple[str, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, Tensor]


class Names:
    """Hands out names that are distinct."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._repeats: Counter[str] = Counter()

    def unique(self, name: str) -> str:
        """The name; with a number where it is taken already."""
        free = name
        while free in self._taken:
            self._repeats[name] += 1
            free = f"{name}:{self._repeats[name]}"
        self._taken.add(free)
        return free


def checked(place: str, tensor: Tensor) -> Tensor:
    """The tensor.

    Raises ValueError, after `place`, for a negative dimension or more dimensions or bytes than a graph may have.
    """
    if any(size < 0 for size in tensor.shape):
        raise ValueError(f"{place}: {list(tensor.shape)[:MAX_RANK]} has a negative dimension")
    if len(tensor.shape) > MAX_RANK or max(tensor.shape, default=0) > MAX_BYTES or tensor.bytes > MAX_BYTES:
        raise ValueError(f"{place}: {str(tensor)[:200]} is more than {MAX_BYTES} bytes or {MAX_RANK} dimensions")
    return tensor


def shown(name: str) -> str:
    """A name as messages have it: in quotes, on one line, not endless."""
    return repr(name if len(name) <= 80 else name[:80] + "...")
