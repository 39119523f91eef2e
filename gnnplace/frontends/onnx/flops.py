"""ONNX's data types and op types: canonical kinds, views of an input, and the flops of a node.

An unknown op type has the canonical kind "other": it has no flops, so its bytes alone cost time, and the front-end
lists it.

The rules, by op type or canonical kind (one multiply-add is 2 flops, any scalar function 1):

| kind | flops |
|---|---|
| MatMul, Gemm | 2 x output elements x contracted dimension |
| Einsum | operands x the product of all its labels' sizes |
| Conv | 2 x output elements x kernel elements x input channels of a group |
| ConvTranspose | 2 x input elements x kernel elements x output channels of a group |
| LSTM, GRU, RNN | 2 x steps x batch x elements of W and R, and 17, 14, 3 per state element and step |
| Attention | 2 x all keys x (elements of the queries + elements of the output), 5 a score |
| pool | output elements x window (global: input elements) |
| Resize, Upsample | 2 an output element and neighbour: 2 (linear), 4 (cubic) an axis; nearest 0 |
| loss | 1 a logit, and 5 more if it computes the softmax |
| Sum, Max, Min, Mean | inputs - 1 an output element (Mean: inputs) |
| scatter | 1 an added element |

All others follow `network.flops`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gnnplace.frontends.network import flops as network_flops
from gnnplace.frontends.network.flops import SOFTMAX_FLOPS, NodeCall, Rule, input_elements
from gnnplace.frontends.network.network import Node

# Data type number in the format -> name used by all front-ends.
DTYPES: dict[int, str] = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool",
    10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16",
    17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4",
    23: "float4_e2m1", 24: "float8_e8m0", 25: "uint2", 26: "int2", 27: "float6_e2m3", 28: "float6_e3m2",
}  # fmt: skip

CANONICAL: dict[str, str] = {
    kind: canonical
    for canonical, kinds in {
        "matmul": "MatMul MatMulInteger QLinearMatMul Gemm LSTM GRU RNN",
        "batch_matmul": "Einsum",
        "conv": "Conv ConvInteger QLinearConv ConvTranspose DeformConv",
        "pool": "MaxPool AveragePool LpPool GlobalMaxPool GlobalAveragePool GlobalLpPool",
        "normalization": (
            "BatchNormalization InstanceNormalization LayerNormalization GroupNormalization RMSNormalization LRN "
            "MeanVarianceNormalization LpNormalization"
        ),
        "softmax": "Softmax LogSoftmax",
        "loss": "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss",
        "attention": "Attention",
        "elementwise": (
            "Add Sub Mul Div Mod Pow Neg Abs Sqrt Exp Log Reciprocal Sign Floor Ceil Round Sin Cos Tan Asin Acos Atan "
            "Sinh Cosh Asinh Acosh Atanh Erf Max Min Mean Sum Clip Where Equal Less LessOrEqual Greater GreaterOrEqual "
            "And Or Not Xor BitShift BitwiseAnd BitwiseOr BitwiseNot BitwiseXor IsNaN IsInf PRelu Trilu QuantizeLinear "
            "DequantizeLinear DynamicQuantizeLinear RotaryEmbedding"
        ),
        "activation": (
            "Relu LeakyRelu ThresholdedRelu Elu Selu Celu Gelu Softplus Softsign Sigmoid HardSigmoid HardSwish Tanh "
            "Mish Swish Shrink"
        ),
        "reduce": (
            "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
            "ReduceSumSquare ArgMax ArgMin CumSum CumProd TopK Hardmax"
        ),
        "concat": "Concat Pad",
        "split": "Split",
        "slice": "Slice CenterCropPad",
        "transpose": "Transpose SpaceToDepth DepthToSpace ReverseSequence",
        "reshape": "Reshape Squeeze Unsqueeze Flatten Identity Resize Upsample Col2Im",
        "gather": "Gather GatherElements GatherND OneHot Compress",
        "scatter": "Scatter ScatterElements ScatterND MaxUnpool",
        "cast": "Cast CastLike",
        "fill": "Constant ConstantOfShape EyeLike Range Expand Tile",
        "random": "RandomNormal RandomUniform RandomNormalLike RandomUniformLike Bernoulli Multinomial Dropout",
        "shape": "Shape Size",
    }.items()
    for kind in kinds.split()
}  # fmt: skip

VIEWS = frozenset(("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"))
RESIZES = frozenset(("Resize", "Upsample"))
STATIC = frozenset(("Constant", "Shape", "Size"))  # their outputs are known before the step
SECOND_MATRIX = {"MatMul": 1, "MatMulInteger": 1, "QLinearMatMul": 3}  # the input; with over two dimensions a batch
NEIGHBOURS = {"linear": 2, "bilinear": 2, "cubic": 4}  # along each axis


def is_view(node: Node) -> bool:
    """Whether the first output shares the first input's buffer. Dropout does unless its training input is given."""
    return any(node.inputs[:1]) and (node.kind in VIEWS or (node.kind == "Dropout" and not any(node.inputs[2:])))


def canonical_kind(node: Node, ranks: Sequence[int], looks_up: bool) -> str:
    """The canonical kind of a node, shared by all frameworks; "other" if its op type is unknown.

    `ranks` are the ranks of the inputs; `looks_up` tells whether the node gathers rows of a weight.
    """
    if looks_up:
        return "embedding"
    second = SECOND_MATRIX.get(node.kind, len(ranks))
    if second < len(ranks) and ranks[second] > 2:
        return "batch_matmul"
    if node.kind in RESIZES and node.attributes.get("mode", "nearest") != "nearest":
        return "pool"
    return "reshape" if is_view(node) else CANONICAL.get(node.kind, "other")


def flops(call: NodeCall) -> int:
    """The flops of one node, by the rules above."""
    return network_flops.flops(call, _BY_KIND)


def _matmul(second: int) -> Rule:
    """The contracted dimension is that of the rows of input `second`, which may be a vector."""
    return lambda call: 2 * call.output.elements * call.needed(second).shape[-2:][0]


def _gemm(call: NodeCall) -> int:
    return 2 * call.output.elements * call.needed(0).shape[0 if call.attribute("transA", int, 0) else 1]


def _convolution(weight: int) -> Rule:
    return lambda call: 2 * call.output.elements * math.prod(call.needed(weight).shape[1:])


def _transposed_convolution(call: NodeCall) -> int:
    return 2 * call.needed(0).elements * math.prod(call.needed(1).shape[1:])


def _recurrent(call: NodeCall) -> int:
    directions, _, hidden = call.needed(2).shape
    weights = call.needed(1).elements + call.needed(2).elements
    return network_flops.recurrent(call.node.kind, math.prod(call.needed(0).shape[:2]), directions * hidden, weights)


def _attention(call: NodeCall) -> int:
    queries, past = call.needed(0), call.inputs[4] if len(call.inputs) > 4 else None
    keys = call.needed(1).shape[-2] + (past.shape[-2] if past is not None else 0)
    heads = call.attribute("q_num_heads", int, 1) if len(queries.shape) == 3 else queries.shape[1]
    return network_flops.attention(queries, keys, heads, call.output)


def _pool(call: NodeCall) -> int:
    window = call.attribute("kernel_shape", list)
    if min(window) < 1:
        raise ValueError(f"{window} is no window")
    return call.output.elements * math.prod(window)


def _resize(call: NodeCall) -> int:
    mode = call.attribute("mode", str, "nearest")
    if mode == "nearest":
        return 0
    return network_flops.interpolation(
        call.needed(0).shape, call.output.shape, NEIGHBOURS[mode], bool(call.attribute("antialias", int, 0))
    )


def _sum(call: NodeCall) -> int:
    return (len(call.inputs) - 1) * call.output.elements


_BY_KIND: dict[str, Rule] = {
    "MatMul": _matmul(1), "MatMulInteger": _matmul(1), "QLinearMatMul": _matmul(3), "Gemm": _gemm,
    "Einsum": network_flops.einsum,
    "Conv": _convolution(1), "ConvInteger": _convolution(1), "DeformConv": _convolution(1),
    "QLinearConv": _convolution(3),
    "ConvTranspose": _transposed_convolution, "LSTM": _recurrent, "GRU": _recurrent, "RNN": _recurrent,
    "Attention": _attention,
    "MaxPool": _pool, "AveragePool": _pool, "LpPool": _pool,
    "GlobalMaxPool": input_elements, "GlobalAveragePool": input_elements, "GlobalLpPool": input_elements,
    "Resize": _resize, "Upsample": _resize,
    "Sum": _sum, "Max": _sum, "Min": _sum, "Mean": lambda call: len(call.inputs) * call.output.elements,
    "NegativeLogLikelihoodLoss": input_elements,
    "SoftmaxCrossEntropyLoss": lambda call: (1 + SOFTMAX_FLOPS) * call.needed(0).elements,
    "Scatter": lambda call: call.needed(2).elements, "ScatterElements": lambda call: call.needed(2).elements,
    "ScatterND": lambda call: call.needed(2).elements, "MaxUnpool": input_elements,
}  # fmt: skip
