"""What OpenVINO's operations (opsets 1 to 16) are: their canonical kind, which of them are views of their input.

An operation that no table names has the canonical kind "other": it costs the bytes that it moves and no arithmetic, and the front-end
lists it.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnnplace.frontends.network.network import Node

CANONICAL: dict[str, str] = {
    kind: canonical
    for canonical, kinds in {
        "matmul": "MatMul LSTMCell GRUCell RNNCell LSTMSequence GRUSequence RNNSequence",
        "batch_matmul": "Einsum",
        "conv": "Convolution GroupConvolution ConvolutionBackpropData GroupConvolutionBackpropData DeformableConvolution BinaryConvolution",
        "pool": "MaxPool AvgPool AdaptiveAvgPool AdaptiveMaxPool",
        "normalization": "MVN BatchNormInference LRN NormalizeL2 GroupNormalization",
        "softmax": "SoftMax LogSoftmax",
        "attention": "ScaledDotProductAttention",
        "elementwise": "Add Subtract Multiply Divide Mod FloorMod Power Negative Abs Sqrt Exp Log Sign Floor Ceiling Round Sin Cos Tan"
        " Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Erf Maximum Minimum Clamp Select Equal NotEqual Less LessEqual Greater GreaterEqual"
        " LogicalAnd LogicalOr LogicalNot LogicalXor BitwiseAnd BitwiseOr BitwiseNot BitwiseXor BitwiseLeftShift BitwiseRightShift IsNaN"
        " IsInf IsFinite SquaredDifference FakeQuantize FakeConvert",
        "activation": "ReLU PReLU Elu Selu Gelu SoftPlus SoftSign Sigmoid HardSigmoid HSigmoid HSwish Tanh Mish Swish",
        "reduce": "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogicalAnd ReduceLogicalOr CumSum TopK"
        " NonMaxSuppression",
        "concat": "Concat Pad",
        "split": "Split VariadicSplit",
        "slice": "Slice StridedSlice",
        "transpose": "Transpose SpaceToDepth DepthToSpace SpaceToBatch BatchToSpace ShuffleChannels ReverseSequence Reverse Roll",
        "reshape": "Reshape Squeeze Unsqueeze Identity Interpolate ExtractImagePatches Col2Im",
        "gather": "Gather GatherElements GatherND GatherTree OneHot",
        "embedding": "EmbeddingBagOffsetsSum EmbeddingBagPackedSum EmbeddingBagOffsets EmbeddingBagPacked EmbeddingSegmentsSum",
        "scatter": "ScatterUpdate ScatterElementsUpdate ScatterNDUpdate SliceScatter",
        "cast": "Convert ConvertLike ConvertPromoteTypes",
        "fill": "Broadcast Tile Range Eye",
        "random": "RandomUniform Multinomial",
        "shape": "ShapeOf",
    }.items()
    for kind in kinds.split()
}  # fmt: skip

VIEWS = frozenset(("Reshape", "Squeeze", "Unsqueeze", "Identity"))


def is_view(node: Node) -> bool:
    """Whether the output is the first input's buffer."""
    return node.kind in VIEWS and bool(node.inputs)


def canonical_kind(node: Node, ranks: Sequence[int], looks_up: bool) -> str:
    """The kind shared by all frameworks; "other" where no table names it.

    `ranks` are those of the inputs; `looks_up` says that the node gathers rows of a weight.
    """
    if looks_up:
        return "embedding"
    if node.kind == "MatMul" and len(ranks) > 1 and ranks[1] > 2:
        return "batch_matmul"
    if node.kind == "Interpolate" and node.attributes.get("mode") != "nearest":
        return "pool"
    return CANONICAL.get(node.kind, "other")
