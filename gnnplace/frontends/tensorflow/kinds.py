"""TensorFlow's op kinds: canonical kinds, aliases of an input, kinds without a kernel, kinds that write variables.

An unknown kind has the canonical kind "other": it has no flops, so its bytes alone cost time, and the front-end lists
it.
"""

from __future__ import annotations

CANONICAL: dict[str, str] = {
    kind: canonical
    for canonical, kinds in {
        "matmul": "MatMul SparseMatMul",
        "batch_matmul": "BatchMatMul BatchMatMulV2 BatchMatMulV3 Einsum",
        "conv": "Conv2D Conv3D DepthwiseConv2dNative",
        "conv_grad_input": "Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput",
        "conv_grad_weight": "Conv2DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter",
        "pool": (
            "MaxPool AvgPool MaxPool3D AvgPool3D Dilation2D ResizeBilinear ResizeBicubic ResizeArea ScaleAndTranslate"
        ),
        "pool_grad": (
            "MaxPoolGrad AvgPoolGrad MaxPool3DGrad AvgPool3DGrad ResizeBilinearGrad ResizeBicubicGrad "
            "ScaleAndTranslateGrad"
        ),
        "normalization": "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 LRN",
        "normalization_grad": "FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 LRNGrad",
        "softmax": "Softmax LogSoftmax",
        "loss": "SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits L2Loss",
        "elementwise": (
            "Add AddV2 AddN Sub Mul Div RealDiv FloorDiv TruncateDiv DivNoNan MulNoNan FloorMod Mod Neg Sign Abs "
            "Square SquaredDifference Sqrt Rsqrt Exp Expm1 Log Log1p Pow Reciprocal Inv Minimum Maximum Floor Ceil "
            "Round Rint Sin Cos Erf Erfc Erfinv Tan Atan Atan2 Asin Acos Sinh Cosh Lgamma Digamma BiasAdd Select "
            "SelectV2 Equal NotEqual Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr LogicalNot IsFinite "
            "IsNan IsInf ClipByValue SqrtGrad RsqrtGrad ReciprocalGrad InvGrad Xlogy Xdivy BitwiseAnd BitwiseOr"
        ),
        "activation": "Relu Relu6 LeakyRelu Elu Selu Softplus Softsign Sigmoid Tanh",
        "activation_grad": (
            "ReluGrad Relu6Grad LeakyReluGrad EluGrad SeluGrad SoftplusGrad SoftsignGrad SigmoidGrad TanhGrad"
        ),
        "reduce": (
            "Sum Mean Prod Max Min Any All ArgMax ArgMin BiasAddGrad Cumsum EuclideanNorm InTopK InTopKV2 TopK TopKV2 "
            "ResizeNearestNeighborGrad"
        ),
        "concat": "Concat ConcatV2 Pack ParallelConcat",
        "split": "Split SplitV Unpack",
        "slice": "Slice StridedSlice StridedSliceGrad Pad PadV2 MirrorPad MirrorPadGrad",
        "transpose": (
            "Transpose ConjugateTranspose ReverseV2 ReverseSequence SpaceToDepth DepthToSpace SpaceToBatchND "
            "BatchToSpaceND"
        ),
        "reshape": (
            "Reshape Squeeze ExpandDims Identity IdentityN StopGradient PreventGradient Snapshot EnsureShape Bitcast "
            "PlaceholderWithDefault ResizeNearestNeighbor"
        ),
        "gather": "Gather GatherV2 GatherNd ResourceGather ResourceGatherNd Unique OneHot Where",
        "scatter": "ScatterNd TensorScatterUpdate TensorScatterAdd UnsortedSegmentSum SegmentSum DynamicStitch",
        "cast": "Cast",
        "fill": "Fill ZerosLike OnesLike Tile BroadcastTo Range LinSpace Const",
        "random": (
            "RandomUniform RandomStandardNormal TruncatedNormal StatelessRandomUniform StatelessRandomUniformV2 "
            "StatelessRandomNormal StatelessRandomNormalV2 RandomUniformInt StatelessTruncatedNormalV2 "
            "StatelessRandomGetKeyCounter"
        ),
        "variable": "VarHandleOp ReadVariableOp",
        "update": (
            "AssignVariableOp AssignAddVariableOp AssignSubVariableOp ResourceScatterUpdate ResourceScatterAdd "
            "ResourceScatterSub ResourceApplyGradientDescent ResourceApplyMomentum ResourceApplyKerasMomentum "
            "ResourceApplyAdagrad ResourceApplyAdagradV2 ResourceApplyAdam ResourceApplyRMSProp "
            "ResourceApplyCenteredRMSProp ResourceApplyFtrl ResourceApplyFtrlV2 ResourceApplyAdadelta "
            "ResourceSparseApplyMomentum ResourceSparseApplyAdagrad ResourceSparseApplyAdagradV2 "
            "ResourceSparseApplyRMSProp"
        ),
        "input": "Placeholder",
        "shape": "Shape ShapeN Size Rank VariableShape BroadcastArgs BroadcastGradientArgs ConcatOffset",
        "control": "NoOp ControlTrigger Assert",
    }.items()
    for kind in kinds.split()
}  # fmt: skip

# Output k shares the buffer of data input k (IdentityN) or of data input 0 (all others).
ALIASES = frozenset((
    "Reshape", "Squeeze", "ExpandDims", "Identity", "IdentityN", "StopGradient", "PreventGradient", "Snapshot",
    "EnsureShape", "Bitcast", "PlaceholderWithDefault", "ReadVariableOp",
))  # fmt: skip

# Kinds that depend on the shapes of their inputs alone; shapes are static here, so the results are constants.
SHAPE_READERS = frozenset(("Shape", "ShapeN", "Size", "Rank", "VariableShape"))

NO_KERNEL = (
    ALIASES
    | {kind for kind, canonical in CANONICAL.items() if canonical == "shape"}
    | {"Const", "NoOp", "ControlTrigger", "VarHandleOp", "Placeholder"}
)

_WRITES = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter")

MAX_FOLDED_ELEMENTS = 16  # the largest output of arithmetic on constants and shapes that the host does once


def writes_variable(kind: str) -> bool:
    """Whether an op of this kind writes a variable, its first input; unknown kinds are recognised by their names."""
    return kind.startswith(_WRITES)


def canonical_kind(kind: str) -> str:
    """The canonical kind, shared by all frameworks; "other" for an unknown kind."""
    return CANONICAL.get(kind, "other")
