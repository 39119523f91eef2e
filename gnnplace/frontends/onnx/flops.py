"""What ONNX's op types are: their canonical kinds, which are views of their input, and the flops of a node.

An unknown one has the canonical kind "other": it costs the bytes that it accesses and no flops, and the front-end lists
it.

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
| Resize, Upsample | 2 an output element and neighbour: 2 (linear), 4 (cubic) an axis; nearest 0 |
| loss | 1 a logit, and 5 more where it computes the softmax |
| Sum, Max, Min, Mean | inputs - 1 an output element (Mean: inputs) |
| scatter | 1 an added element |

All others count as `network.flops` says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gnnplace.frontends.network import flops as network_flops
from gnnplace.frontends.network.flops import SOFTMAX_FLOPS, NodeCall, Rule, input_elements
from gnnplace.frontends.network.network import Node

CANONICAL: dict[str, str] = {
    kind: canonical
    for canonical, kinds in {
        "matmul": "MatMul MatMulInteger QLinearMatMul Gemm LSTM GRU RNN",
        "batch_matmul": "Einsum",
        "conv": "Conv ConvInteger QLinearConv ConvTranspose DeformConv",
        "pool": "MaxPool AveragePool LpPool GlobalMaxPool GlobalAveragePool GlobalLpPool",
        "normalization": "BatchNormalization InstanceNormalization LayerNormalization GroupNormalization "
                         "RMSNormalization LRN"
        " MeanVarianceNormalization LpNormalization",
        "softmax": "Softmax LogSoftmax",
        "loss": "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss",
        "attention": "Attention",
        "elementwise": "Add Sub Mul Div Mod Pow Neg Abs Sqrt Exp Log Reciprocal Sign Floor Ceil Round Sin Cos Tan "
                       "Asin Acos Atan Sinh Cosh"
        " Asinh Acosh Atanh Erf Max Min Mean Sum Clip Where Equal Less LessOrEqual Greater GreaterOrEqual And Or "
        "Not Xor BitShift"
        " BitwiseAnd BitwiseOr BitwiseNot BitwiseXor IsNaN IsInf PRelu Trilu QuantizeLinear DequantizeLinear "
        "DynamicQuantizeLinear"
        " RotaryEmbedding",
        "activation": "Relu LeakyRelu ThresholdedRelu Elu Selu Celu Gelu Softplus Softsign Sigmoid HardSigmoid "
                      "HardSwish Tanh Mish Swish"
        " Shrink",
        "reduce": "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum "
                  "ReduceLogSumExp ReduceSumSquare"
        " ArgMax ArgMin CumSum CumProd TopK Hardmax",
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
KNOWN = frozenset(("Constant", "Shape", "Size"))  # their outputs are known before the step
# where that input has more than two dimensions: many products
SECOND_MATRIX = {"MatMul": 1, "MatMulInteger": 1, "QLinearMatMul": 3}
NEIGHBOURS = {"linear": 2, "bilinear": 2, "cubic": 4}  # along each axis


def is_view(node: Node) -> bool:
    """Whether the first output shares the first input's buffer. Dropout does unless its training input is given."""
    return any(node.inputs[:1]) and (node.kind in VIEWS or (node.kind == "Dropout" and not any(node.inputs[2:])))


def canonical_kind(node: Node, ranks: Sequence[int], looks_up: bool) -> str:
    """The canonical kind of a node, shared by all frameworks; "other" if unknown.

    `ranks` are the ranks of the inputs; `looks_up` says that the node gathers rows of a weight.
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
    """By the rows of the second factor, which may be a vector."""
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
