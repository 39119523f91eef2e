"""What an ONNX file says of its network, once shapes are known: plain records, which travel as JSON from the process that read it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

# By the number of the data type in the format: the name that all front-ends use, and the bits of an element.
DTYPES: dict[int, tuple[str, int]] = {
    1: ("float32", 32), 2: ("uint8", 8), 3: ("int8", 8), 4: ("uint16", 16), 5: ("int16", 16), 6: ("int32", 32), 7: ("int64", 64),
    8: ("string", 192), 9: ("bool", 8), 10: ("float16", 16), 11: ("float64", 64), 12: ("uint32", 32), 13: ("uint64", 64),
    14: ("complex64", 64), 15: ("complex128", 128), 16: ("bfloat16", 16), 17: ("float8_e4m3fn", 8), 18: ("float8_e4m3fnuz", 8),
    19: ("float8_e5m2", 8), 20: ("float8_e5m2fnuz", 8), 21: ("uint4", 4), 22: ("int4", 4), 23: ("float4_e2m1", 4),
    24: ("float8_e8m0", 8), 25: ("uint2", 2), 26: ("int2", 2), 27: ("float6_e2m3", 6), 28: ("float6_e3m2", 6),
}  # fmt: skip
_BITS = dict(DTYPES.values())  # a string is its header of 24 bytes: what it points to is not known before the step


@dataclass(frozen=True, slots=True)
class Tensor:
    """The type of a value: its full shape and its dtype, one of `DTYPES`."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return -(-self.elements * _BITS[self.dtype] // 8)


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its kind has the domain before it unless that is ONNX's own; absent inputs and outputs are named ""."""

    name: str
    kind: str
    layer: str | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]  # integers, lists of them, and text


@dataclass(frozen=True, slots=True)
class Model:
    """Nodes in topological order; the names of values, each made once; and their types, but for outputs that nobody reads."""

    inputs: tuple[str, ...]
    initializers: tuple[str, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, Tensor]


def to_json(model: Model) -> dict[str, Any]:
    """The model as a JSON object."""
    return asdict(model) | {"tensors": {name: [list(tensor.shape), tensor.dtype] for name, tensor in model.tensors.items()}}


def from_json(document: Mapping[str, Any]) -> Model:
    """The model that `to_json` described."""
    tensors = {name: Tensor(tuple(shape), dtype) for name, (shape, dtype) in document["tensors"].items()}
    nodes = tuple(Node(**node | {"inputs": tuple(node["inputs"]), "outputs": tuple(node["outputs"])}) for node in document["nodes"])
    values = {key: tuple(document[key]) for key in ("inputs", "initializers", "outputs")}
    return Model(nodes=nodes, tensors=tensors, **values)
