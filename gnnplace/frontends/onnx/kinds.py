"""The canonical kinds of ONNX's op types, and which of them are views of their input.

An unknown type has the canonical kind "other": it costs the bytes that it accesses and 0 flops, and the front-end reports it.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnnplace.frontends.network.network import Node

CANONICAL: dict[str, str] = {
    kind: canonical
    for canonical, kinds in {
        "matmul": "MatMul MatMulInteger QLinearMatMul Gemm LSTM GRU RNN",
        "batch_matmul": "Einsum",
        "conv": "Conv ConvInteger QLinearConv ConvTranspose DeformConv",
        "pool": "MaxPool AveragePool LpPool GlobalMaxPool GlobalAveragePool GlobalLpPool",
        "normalization": "BatchNormalization InstanceNormalization LayerNormalization GroupNormalization RMSNormalization LRN"
        " MeanVarianceNormalization LpNormalization",
        "softmax": "Softmax LogSoftmax",
        "loss": "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss",
        "attention": "Attention",
        "elementwise": "Add Sub Mul Div Mod Pow Neg Abs Sqrt Exp Log Reciprocal Sign Floor Ceil Round Sin Cos Tan Asin Acos Atan Sinh Cosh"
        " Asinh Acosh Atanh Erf Max Min Mean Sum Clip Where Equal Less LessOrEqual Greater GreaterOrEqual And Or Not Xor BitShift"
        " BitwiseAnd BitwiseOr BitwiseNot BitwiseXor IsNaN IsInf PRelu Trilu QuantizeLinear DequantizeLinear DynamicQuantizeLinear"
        " RotaryEmbedding",
        "activation": "Relu LeakyRelu ThresholdedRelu Elu Selu Celu Gelu Softplus Softsign Sigmoid HardSigmoid HardSwish Tanh Mish Swish"
        " Shrink",
        "reduce": "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare"
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
SECOND_MATRIX = {"MatMul": 1, "MatMulInteger": 1, "QLinearMatMul": 3}  # where that input has more than two dimensions: many products


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
