"""OpenVINO's operations (opsets 1 to 16): canonical kinds, views of an input, and the flops of a layer.

An unknown operation has the canonical kind "other": it has no flops, so its bytes alone cost time, and the front-end
lists it.

The rules, by operation (one multiply-add is 2 flops, any scalar function 1):

| kind | flops |
|---|---|
| MatMul | 2 x output elements x contracted dimension |
| Einsum | operands x the product of all its labels' sizes |
| Convolution (and Group-, Deformable-, Binary-) | 2 x output elements x kernel elements x a group's input channels |
| (Group)ConvolutionBackpropData | 2 x input elements x kernel elements x output channels of a group |
| LSTM-, GRU-, RNNCell, -Sequence | 2 x steps x batch x elements of W and R; 17, 14, 3 per state element and step |
| ScaledDotProductAttention | 2 x keys x (elements of the queries + elements of the output), 5 a score |
| MaxPool, AvgPool | output elements x window (adaptive: input elements) |
| BatchNormInference, FakeQuantize | 2, 4 an output element: a scale and an offset; a clamp, a rounding, and scales |
| Interpolate | 2 an output element and neighbour: 2 (linear), 4 (cubic) an axis, more to avoid aliasing; nearest 0 |
| NonMaxSuppression | 10 for each pair of a box and a selected box |
| EmbeddingBag..., EmbeddingSegmentsSum | 1 for each element looked up |
| scatter | 1 an added element |

All others follow `network.flops`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gnnplace.frontends.network import flops as network_flops
from gnnplace.frontends.network.flops import NodeCall, Rule, input_elements
from gnnplace.frontends.network.network import Node

CANONICAL: dict[str, str] = {
    kind: canonical
    for canonical, kinds in {
        "matmul": "MatMul LSTMCell GRUCell RNNCell LSTMSequence GRUSequence RNNSequence",
        "batch_matmul": "Einsum",
        "conv": (
            "Convolution GroupConvolution ConvolutionBackpropData GroupConvolutionBackpropData DeformableConvolution "
            "BinaryConvolution"
        ),
        "pool": "MaxPool AvgPool AdaptiveAvgPool AdaptiveMaxPool",
        "normalization": "MVN BatchNormInference LRN NormalizeL2 GroupNormalization",
        "softmax": "SoftMax LogSoftmax",
        "attention": "ScaledDotProductAttention",
        "elementwise": (
            "Add Subtract Multiply Divide Mod FloorMod Power Negative Abs Sqrt Exp Log Sign Floor Ceiling Round Sin "
            "Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Erf Maximum Minimum Clamp Select Equal NotEqual Less "
            "LessEqual Greater GreaterEqual LogicalAnd LogicalOr LogicalNot LogicalXor BitwiseAnd BitwiseOr BitwiseNot "
            "BitwiseXor BitwiseLeftShift BitwiseRightShift IsNaN IsInf IsFinite SquaredDifference FakeQuantize "
            "FakeConvert"
        ),
        "activation": "ReLU PReLU Elu Selu Gelu SoftPlus SoftSign Sigmoid HardSigmoid HSigmoid HSwish Tanh Mish Swish",
        "reduce": (
            "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogicalAnd ReduceLogicalOr "
            "CumSum TopK NonMaxSuppression"
        ),
        "concat": "Concat Pad",
        "split": "Split VariadicSplit",
        "slice": "Slice StridedSlice",
        "transpose": (
            "Transpose SpaceToDepth DepthToSpace SpaceToBatch BatchToSpace ShuffleChannels ReverseSequence Reverse "
            "Roll"
        ),
        "reshape": "Reshape Squeeze Unsqueeze Identity Interpolate ExtractImagePatches Col2Im",
        "gather": "Gather GatherElements GatherND GatherTree OneHot",
        "embedding": (
            "EmbeddingBagOffsetsSum EmbeddingBagPackedSum EmbeddingBagOffsets EmbeddingBagPacked EmbeddingSegmentsSum"
        ),
        "scatter": "ScatterUpdate ScatterElementsUpdate ScatterNDUpdate SliceScatter",
        "cast": "Convert ConvertLike ConvertPromoteTypes",
        "fill": "Broadcast Tile Range Eye",
        "random": "RandomUniform Multinomial",
        "shape": "ShapeOf",
    }.items()
    for kind in kinds.split()
}  # fmt: skip

VIEWS = frozenset(("Reshape", "Squeeze", "Unsqueeze", "Identity"))
OVERLAP_FLOPS = 10  # intersection over union of two boxes, compared
NEIGHBOURS = {"linear": 2, "linear_onnx": 2, "bilinear_pillow": 2, "cubic": 4, "bicubic_pillow": 4}  # along each axis


def is_view(node: Node) -> bool:
    """Whether the output is the first input's buffer."""
    return node.kind in VIEWS and bool(node.inputs)


def canonical_kind(node: Node, ranks: Sequence[int], looks_up: bool) -> str:
    """The canonical kind of a layer, shared by all frameworks; "other" if its operation is unknown.

    `ranks` are the ranks of the inputs; `looks_up` tells whether the layer gathers rows of a weight.
    """
    if looks_up:
        return "embedding"
    if node.kind == "MatMul" and len(ranks) > 1 and ranks[1] > 2:
        return "batch_matmul"
    if node.kind == "Interpolate" and node.attributes.get("mode") != "nearest":
        return "pool"
    return CANONICAL.get(node.kind, "other")


def flops(call: NodeCall) -> int:
    """The flops of one layer, by the rules above."""
    return network_flops.flops(call, BY_KIND)


def _matmul(call: NodeCall) -> int:
    left = call.needed(0).shape or (1,)
    transposed = len(left) > 1 and call.node.attributes.get("transpose_a", "").lower() in ("true", "1")
    return 2 * call.output.elements * left[-2 if transposed else -1]


def _convolution(weight: int, first: int) -> Rule:
    """One output element is a sum over the dimensions of input `weight` from `first` on."""
    return lambda call: 2 * call.output.elements * math.prod(call.needed(weight).shape[first:])


def _transposed_convolution(first: int) -> Rule:
    return lambda call: 2 * call.needed(0).elements * math.prod(call.needed(1).shape[first:])


def _recurrent(weight: int, first: int) -> Rule:
    """Input `weight` is W, the next one R. Dimensions of the data before `first` count as rows."""

    def rule(call: NodeCall) -> int:
        w, r = call.needed(weight), call.needed(weight + 1)
        states = r.shape[-1] * (r.shape[0] if len(r.shape) > 2 else 1)
        cell = call.node.kind.removesuffix("Cell").removesuffix("Sequence")
        return network_flops.recurrent(cell, math.prod(call.needed(0).shape[:first]), states, w.elements + r.elements)

    return rule


def _attention(call: NodeCall) -> int:
    queries, keys = call.needed(0), call.needed(1)
    return network_flops.attention(queries, keys.shape[-2], math.prod(queries.shape[1:-2]), call.output)


def _pool(call: NodeCall) -> int:
    return call.output.elements * math.prod(map(int, call.node.attributes["kernel"].split(",")))


def _interpolate(call: NodeCall) -> int:
    image, mode = call.needed(0).shape, call.node.attributes["mode"]
    if mode == "nearest":
        return 0
    widened = mode.endswith("pillow") or call.node.attributes.get("antialias", "").lower() in ("true", "1")
    return network_flops.interpolation(image, call.output.shape, NEIGHBOURS[mode], widened)


def _suppression(call: NodeCall) -> int:
    """The rows of the output, shared among batches and classes, bound the number of selected boxes."""
    batch, boxes, _ = call.needed(0).shape
    classes = call.needed(1).shape[1]
    selected = min(boxes, -(-call.output.shape[0] // max(1, batch * classes)))
    return OVERLAP_FLOPS * batch * classes * boxes * selected


def _embedding_sum(call: NodeCall) -> int:
    return call.needed(1).elements * math.prod(call.needed(0).shape[1:])


def _per_element(count: int) -> Rule:
    return lambda call: count * call.output.elements


def _scatter(updates: int) -> Rule:
    return lambda call: call.needed(updates).elements


BY_KIND: dict[str, Rule] = {
    "MatMul": _matmul, "Einsum": network_flops.einsum,
    "Convolution": _convolution(1, 1), "BinaryConvolution": _convolution(1, 1), "GroupConvolution": _convolution(1, 2),
    "DeformableConvolution": _convolution(2, 1),
    "ConvolutionBackpropData": _transposed_convolution(1), "GroupConvolutionBackpropData": _transposed_convolution(2),
    "LSTMCell": _recurrent(3, 1), "GRUCell": _recurrent(2, 1), "RNNCell": _recurrent(2, 1),
    "LSTMSequence": _recurrent(4, 2), "GRUSequence": _recurrent(3, 2), "RNNSequence": _recurrent(3, 2),
    "ScaledDotProductAttention": _attention,
    "MaxPool": _pool, "AvgPool": _pool, "AdaptiveAvgPool": input_elements, "AdaptiveMaxPool": input_elements,
    "BatchNormInference": _per_element(2), "FakeQuantize": _per_element(4),
    "Interpolate": _interpolate, "NonMaxSuppression": _suppression,
    **dict.fromkeys(network_flops.SUMS_OF_ROWS, _embedding_sum),
    "ScatterUpdate": _scatter(2), "ScatterElementsUpdate": _scatter(2), "ScatterNDUpdate": _scatter(2),
    "SliceScatter": _scatter(1),
}  # fmt: skip
