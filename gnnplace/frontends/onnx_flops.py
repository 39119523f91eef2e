"""What an ONNX node costs: its flops, the bytes that it touches, its scratch.

The rules, by op type or canonical kind (one multiply-add is 2 flops; any scalar function is 1):

| kind | flops |
|---|---|
| MatMul, Gemm | 2 x output elements x contracted dimension |
| Einsum | operands x the product of all its labels' sizes |
| Conv | 2 x output elements x kernel elements x input channels of a group |
| ConvTranspose | 2 x input elements x kernel elements x output channels of a group |
| LSTM, GRU, RNN | 2 x steps x batch x elements of W and R, and 17, 14, 3 per state element and step |
| Attention | 2 x all keys x (elements of the queries + elements of the output), 5 a score |
| pool | output elements x window (global: input elements) |
| normalization, softmax | 8, 5 an output element |
| loss | 1 a logit, and 5 more where it computes the softmax |
| elementwise, activation, random, cast | 1 an output element (Sum, Max, Min: inputs - 1; Mean: inputs) |
| reduce | 1 an element of the first input |
| scatter | 1 an added element |
| moves, views, fills, shapes | 0 |
| other | 0: its time is that of its bytes |

Bytes are those of the inputs and outputs, except where an op touches less: lookups and slices read what they yield, fills only write.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gnnplace.frontends.onnx_model import Node, Tensor

ONE_AN_OUTPUT_ELEMENT = frozenset(("elementwise", "activation", "random", "cast"))
PER_OUTPUT_ELEMENT = {"normalization": 8, "softmax": 5}
SOFTMAX_FLOPS = PER_OUTPUT_ELEMENT["softmax"]
CELL_FLOPS = {"LSTM": 17, "GRU": 14, "RNN": 3}  # sums of products and bias, gates, the new state
NO_TENSOR = Tensor((0,), "float32")


@dataclass(frozen=True, slots=True)
class Call:
    """A node with the tensors that it reads and makes; None where it has none there, or one that nobody needs."""

    node: Node
    canonical: str
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]

    def input(self, index: int) -> Tensor:
        """An input, an empty one where it is absent."""
        return (self.inputs[index] if index < len(self.inputs) else None) or NO_TENSOR

    @property
    def output(self) -> Tensor:
        """The first output that there is."""
        return next((tensor for tensor in self.outputs if tensor is not None), NO_TENSOR)


def flops(call: Call) -> int:
    """The arithmetic of one node, by the rules above."""
    if call.node.kind in _BY_KIND:
        return _BY_KIND[call.node.kind](call)
    if call.canonical in ONE_AN_OUTPUT_ELEMENT:
        return call.output.elements
    if call.canonical in PER_OUTPUT_ELEMENT:
        return PER_OUTPUT_ELEMENT[call.canonical] * call.output.elements
    if call.canonical == "pool":
        return call.output.elements * math.prod(call.node.attributes["kernel_shape"])
    if call.canonical == "reduce":
        return call.input(0).elements
    return 0


def bytes_accessed(call: Call) -> int | None:
    """The memory traffic of one node where it is not that of its inputs and outputs, else None."""
    made = sum(tensor.bytes for tensor in call.outputs if tensor is not None)
    others = sum(tensor.bytes for tensor in call.inputs[1:] if tensor is not None)
    match call.canonical:
        case "embedding" | "gather" | "slice":
            return 2 * made + others
        case "fill" if call.node.kind not in ("Expand", "Tile"):
            return made
    return None


def workspace_bytes(call: Call) -> int:
    """Scratch of one node: finding the largest needs a second copy of what is searched."""
    return call.input(0).bytes if call.node.kind == "TopK" else 0


def _matmul(call: Call) -> int:
    return 2 * call.output.elements * (call.input(0).shape or (1,))[-1]


def _gemm(call: Call) -> int:
    return 2 * call.output.elements * call.input(0).shape[0 if call.node.attributes.get("transA") else 1]


def _einsum(call: Call) -> int:
    """Every combination of labels is a product of all operands; `...` are labels of their own, aligned at their ends."""
    sizes: dict[str, int] = {}
    operands = call.node.attributes["equation"].replace(" ", "").partition("->")[0].split(",")
    for labels, tensor in zip(operands, (call.input(index) for index in range(len(operands))), strict=True):
        before, dots, after = labels.partition("...")
        free = len(tensor.shape) - len(before) - len(after) if dots else 0
        names = [*before, *(f"...{free - index}" for index in range(free)), *after]
        for name, size in zip(names, tensor.shape, strict=True):
            sizes[name] = max(size, sizes.get(name, 0))
    return len(operands) * math.prod(sizes.values())


def _convolution(weight: int) -> Callable[[Call], int]:
    return lambda call: 2 * call.output.elements * math.prod(call.input(weight).shape[1:])


def _transposed_convolution(call: Call) -> int:
    return 2 * call.input(0).elements * math.prod(call.input(1).shape[1:])


def _recurrent(call: Call) -> int:
    steps = math.prod(call.input(0).shape[:2])
    directions, _, hidden = call.input(2).shape
    products = call.input(1).elements + call.input(2).elements
    return steps * (2 * products + CELL_FLOPS[call.node.kind] * directions * hidden)


def _attention(call: Call) -> int:
    queries, keys = call.input(0), call.input(1).shape[-2] + (call.input(4).shape[-2] if call.input(4) is not NO_TENSOR else 0)
    heads = call.node.attributes.get("q_num_heads", 1) if len(queries.shape) == 3 else queries.shape[1]
    scores = queries.shape[0] * heads * queries.shape[-2] * keys
    return 2 * keys * (queries.elements + call.output.elements) + SOFTMAX_FLOPS * scores


def _sum(call: Call) -> int:
    return (len(call.inputs) - 1) * call.output.elements


_BY_KIND: dict[str, Callable[[Call], int]] = {
    "MatMul": _matmul, "MatMulInteger": _matmul, "QLinearMatMul": _matmul, "Gemm": _gemm, "Einsum": _einsum,
    "Conv": _convolution(1), "ConvInteger": _convolution(1), "DeformConv": _convolution(1), "QLinearConv": _convolution(3),
    "ConvTranspose": _transposed_convolution, "LSTM": _recurrent, "GRU": _recurrent, "RNN": _recurrent, "Attention": _attention,
    "GlobalMaxPool": lambda call: call.input(0).elements, "GlobalAveragePool": lambda call: call.input(0).elements,
    "GlobalLpPool": lambda call: call.input(0).elements,
    "Sum": _sum, "Max": _sum, "Min": _sum, "Mean": lambda call: len(call.inputs) * call.output.elements,
    "NegativeLogLikelihoodLoss": lambda call: call.input(0).elements,
    "SoftmaxCrossEntropyLoss": lambda call: (1 + SOFTMAX_FLOPS) * call.input(0).elements,
    "Scatter": lambda call: call.input(2).elements, "ScatterElements": lambda call: call.input(2).elements,
    "ScatterND": lambda call: call.input(2).elements, "MaxUnpool": lambda call: call.input(0).elements,
}  # fmt: skip
