"""The costs of a node of a network file that all file formats share; each format's table adds its own.

PyTorch's and TensorFlow's front-ends use `interpolation`, too.

| canonical kind | flops |
|---|---|
| normalization, softmax | 8, 5 an output element |
| elementwise, activation, random, cast | 1 an output element |
| reduce | 1 an element of the first input |
| moves, views, fills, shapes | 0 |
| other | 0: its time is that of its bytes |

Bytes are those of the inputs and outputs, except where an op touches less: lookups and slices read what they yield,
fills only write.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gnnplace.frontends.network.network import Node, Tensor

ONE_AN_OUTPUT_ELEMENT = frozenset(("elementwise", "activation", "random", "cast"))
PER_OUTPUT_ELEMENT = {"normalization": 8, "softmax": 5}
SOFTMAX_FLOPS = PER_OUTPUT_ELEMENT["softmax"]
CELL_FLOPS = {"LSTM": 17, "GRU": 14, "RNN": 3}  # sums of products and bias, gates, the new state
OVERLAP_FLOPS = 10  # intersection over union of two boxes, compared
COPIES = frozenset(("Expand", "Tile", "Broadcast"))  # fills that read the values they repeat
SUMS_OF_ROWS = frozenset((
    "EmbeddingBagOffsetsSum", "EmbeddingBagPackedSum", "EmbeddingBagOffsets", "EmbeddingBagPacked",
    "EmbeddingSegmentsSum"
))  # fmt: skip
NO_TENSOR = Tensor((0,), "float32")
Value = TypeVar("Value", int, str, list)


@dataclass(frozen=True, slots=True)
class NodeCall:
    """A node with its input and output tensors; None for an absent input or output, or an output without a reader."""

    node: Node
    canonical: str
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]

    def input(self, index: int) -> Tensor:
        """An input; an empty tensor if it is absent."""
        return (self.inputs[index] if index < len(self.inputs) else None) or NO_TENSOR

    def needed(self, index: int) -> Tensor:
        """An input. Raises IndexError if it is absent."""
        if (tensor := self.inputs[index]) is None:
            raise IndexError(index)
        return tensor

    def attribute(self, name: str, kind: type[Value], default: Value | None = None) -> Value:
        """An attribute. Raises KeyError if it is absent and has no default, TypeError if it has another type."""
        value = self.node.attributes[name] if default is None else self.node.attributes.get(name, default)
        if not isinstance(value, kind):
            raise TypeError(f"{name}: {value!r} is no {kind.__name__}")
        return value

    @property
    def output(self) -> Tensor:
        """The first output that is present; an empty tensor without any."""
        return next((tensor for tensor in self.outputs if tensor is not None), NO_TENSOR)


Rule = Callable[[NodeCall], int]


def flops(call: NodeCall, by_kind: Mapping[str, Rule]) -> int:
    """The flops of one node, by the rule of its kind in `by_kind` or else by the table above."""
    if call.node.kind in by_kind:
        return by_kind[call.node.kind](call)
    if call.canonical in ONE_AN_OUTPUT_ELEMENT:
        return call.output.elements
    if call.canonical in PER_OUTPUT_ELEMENT:
        return PER_OUTPUT_ELEMENT[call.canonical] * call.output.elements
    if call.canonical == "reduce":
        return call.input(0).elements
    return 0


def bytes_accessed(call: NodeCall) -> int | None:
    """The memory traffic of one node; None if it is the sum of its inputs and outputs.

    Raises IndexError for a table without rows.
    """
    output_bytes = sum(tensor.bytes for tensor in call.outputs if tensor is not None)
    index_bytes = sum(tensor.bytes for tensor in call.inputs[1:] if tensor is not None)
    match call.canonical:
        case "embedding" if call.node.kind in SUMS_OF_ROWS:
            table = call.input(0)
            return call.input(1).elements * (table.bytes // max(1, table.shape[0])) + output_bytes + index_bytes
        case "embedding" | "gather" | "slice":
            return 2 * output_bytes + index_bytes
        case "fill" if call.node.kind not in COPIES:
            return output_bytes
    return None


def workspace_bytes(call: NodeCall) -> int:
    """The workspace of one node: `TopK` needs a copy of its input."""
    return call.input(0).bytes if call.node.kind == "TopK" else 0


def einsum(call: NodeCall) -> int:
    """The flops of `Einsum`: one product of all operands for each combination of labels.

    `...` stands for unnamed labels, aligned at their ends.
    """
    sizes: dict[str, int] = {}
    operands = call.attribute("equation", str).replace(" ", "").partition("->")[0].split(",")
    for labels, tensor in zip(operands, (call.needed(index) for index in range(len(operands))), strict=True):
        before, dots, after = labels.partition("...")
        free = len(tensor.shape) - len(before) - len(after) if dots else 0
        names = [*before, *(f"...{free - index}" for index in range(free)), *after]
        for name, size in zip(names, tensor.shape, strict=True):
            sizes[name] = max(size, sizes.get(name, 0))
    return len(operands) * math.prod(sizes.values())


def interpolation(image: Sequence[int], resized: Sequence[int], neighbours: int, antialias: bool) -> int:
    """The flops of resizing an image: 2 for each element of the result and each neighbour that it is interpolated from.

    There are `neighbours` along each resized axis. Against aliasing the kernel is widened by the factor by which an
    axis shrinks.
    """
    axes = [(before, after) for before, after in zip(image, resized, strict=True) if before != after]
    kernel = [
        -(-neighbours * before // max(1, after)) if antialias and before > after else neighbours
        for before, after in axes
    ]
    return 2 * math.prod(resized) * math.prod(kernel)


def input_elements(call: NodeCall) -> int:
    """One flop an element of the first input."""
    return call.input(0).elements


def recurrent(cell: str, rows: int, states: int, weights: int) -> int:
    """The flops of a recurrent layer of `cell`s.

    `rows` is the number of steps x samples, `states` the elements of one row's state, `weights` the elements of both
    weight matrices.
    """
    return rows * (2 * weights + CELL_FLOPS[cell] * states)


def fourier(length: int, is_real: bool) -> int:
    """The flops of a fast Fourier transform: 5 n log2(n), rounded up, of n complex numbers; half for real ones."""
    full = 5 * length * max(0, length - 1).bit_length()
    return -(-full // 2) if is_real else full


def sampled(call: NodeCall, neighbours: int, axes: int) -> int:
    """The flops of sampling an image at points: 2 an output element and neighbour, `neighbours` along each axis."""
    return 2 * call.output.elements * neighbours**axes


def suppression(batch: int, classes: int, boxes: int, selected: int) -> int:
    """The flops of suppressing boxes that overlap a selected one: 10 a box and selected box."""
    return OVERLAP_FLOPS * batch * classes * boxes * min(boxes, selected)


def bin_pixels(image: Sequence[int], bins: Sequence[int]) -> int:
    """The pixels of one of the bins of a region as large as the image, rounded up along each axis."""
    return math.prod(-(-size // max(1, count)) for size, count in zip(image, bins, strict=True))


def attention(queries: Tensor, keys: int, heads: int, output: Tensor) -> int:
    """The flops of attention: two products and a softmax of `keys` scores for each query and head."""
    scores = queries.shape[0] * heads * queries.shape[-2] * keys
    return 2 * keys * (queries.elements + output.elements) + SOFTMAX_FLOPS * scores
