"""A network read from a file of any format, with all shapes: plain records of values and nodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnnplace.graph import MAX_BYTES

# The bits of an element. A string counts as its header of 24 bytes, since its text is not known before the step.
BITS: dict[str, int] = {
    "float64": 64, "float32": 32, "bfloat16": 16, "float16": 16, "float8_e4m3fn": 8, "float8_e4m3fnuz": 8,
    "float8_e5m2": 8, "float8_e5m2fnuz": 8, "float8_e8m0": 8, "float6_e2m3": 6, "float6_e3m2": 6, "float4_e2m1": 4,
    "nf4": 4,
    "int64": 64, "int32": 32, "int16": 16, "int8": 8, "int4": 4, "int2": 2,
    "uint64": 64, "uint32": 32, "uint16": 16, "uint8": 8, "uint6": 6, "uint4": 4, "uint3": 3, "uint2": 2, "uint1": 1,
    "bool": 8, "complex64": 64, "complex128": 128, "string": 192,
}  # fmt: skip
MAX_RANK = 256


@dataclass(frozen=True, slots=True)
class Tensor:
    """The type of a value: its shape, without unknown dimensions, and its dtype, one of `BITS`."""

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
    """One node of the network. Absent inputs and outputs are named "".

    A kind from outside the format's standard has its domain as a prefix.
    """

    name: str
    kind: str
    layer: str | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]  # integers, lists of integers, and text


@dataclass(frozen=True, slots=True)
class Network:
    """Nodes in topological order, the names of inputs, initializers (weights) and outputs, and the types of values.

    Each value has one producer. Outputs of nodes without a reader may lack a type.
    """

    inputs: tuple[str, ...]
    initializers: tuple[str, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, Tensor]


def to_json(network: Network) -> dict[str, Any]:
    """The network as a JSON object, in which a child process returns it."""
    tensors = {name: (tensor.shape, tensor.dtype) for name, tensor in network.tensors.items()}
    nodes = [
        (node.name, node.kind, node.layer, node.inputs, node.outputs, dict(node.attributes)) for node in network.nodes
    ]
    values = {"inputs": network.inputs, "initializers": network.initializers, "outputs": network.outputs}
    return {"nodes": nodes, "tensors": tensors} | values


def from_json(document: Mapping[str, Any]) -> Network:
    """The network of an object made by `to_json`."""
    tensors = {name: Tensor(tuple(shape), dtype) for name, (shape, dtype) in document["tensors"].items()}
    nodes = tuple(
        Node(name, kind, layer, tuple(inputs), tuple(outputs), attributes)
        for name, kind, layer, inputs, outputs, attributes in document["nodes"]
    )
    values = {key: tuple(document[key]) for key in ("inputs", "initializers", "outputs")}
    return Network(nodes=nodes, tensors=tensors, **values)


class Names:
    """Hands out distinct names."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._repeats: Counter[str] = Counter()

    def unique(self, name: str) -> str:
        """The name, with a number behind it if it has been handed out before."""
        distinct = name
        while distinct in self._used:
            self._repeats[name] += 1
            distinct = f"{name}:{self._repeats[name]}"
        self._used.add(distinct)
        return distinct


def checked(place: str, tensor: Tensor) -> Tensor:
    """The tensor itself.

    Raises ValueError, beginning with `place`, for a negative dimension or more dimensions or bytes than a graph may
    have.
    """
    if any(size < 0 for size in tensor.shape):
        raise ValueError(f"{place}: {list(tensor.shape)[:MAX_RANK]} has a negative dimension")
    if len(tensor.shape) > MAX_RANK or max(tensor.shape, default=0) > MAX_BYTES or tensor.bytes > MAX_BYTES:
        raise ValueError(f"{place}: {str(tensor)[:200]} is more than {MAX_BYTES} bytes or {MAX_RANK} dimensions")
    return tensor


def shown(name: str) -> str:
    """A name for a message: quoted, on one line, of limited length."""
    return repr(name if len(name) <= 80 else name[:80] + "...")
