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
| scatter, Col2Im | 1 an added element |
| LinearAttention | an element of the states and step: 2 for the key, 2 a query head; gated 1, delta 2 more |
| CausalConvWithState | 2 x output elements x kernel elements |
| AffineGrid | 2 x output elements x columns of theta |
| GridSample | 2 an output element and neighbour: 2 (linear), 4 (cubic) an axis; nearest 0 |
| RoiAlign, MaxRoiPool | 8 a sample, 1 a pooled element; regions of unknown size count as the image |
| DFT, STFT | 5 n log2(n) a transform of n complex numbers, half of that of n real ones; a window 1 an element |
| Det | 2/3 n^3 a matrix |
| NonMaxSuppression | 10 for each pair of a box and a selected box |
| SwiGLU, RotaryEmbedding | 2, 3 an output element |
| HannWindow, HammingWindow, BlackmanWindow | 4, 4, 7 an output element |
| MelWeightMatrix | 4 an output element |
| TfIdfVectorizer | 1 an n-gram of the input and 1 an output element |
| Linear..., SVM..., TreeEnsemble... | 2 a coefficient; 2 a feature of a support vector; 1 a level of a balanced tree |
| Scaler | 2 an output element |
| Adagrad, Adam, Momentum | 9, 16, 9 a parameter |

All others follow `network.flops`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gnnplace.frontends.network import flops as network_flops
from gnnplace.frontends.network.flops import SOFTMAX_FLOPS, NodeCall, Rule, input_elements
from gnnplace.frontends.network.network import Node, Tensor

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
        "matmul": (
            "MatMul MatMulInteger QLinearMatMul Gemm LSTM GRU RNN ai.onnx.ml.LinearClassifier "
            "ai.onnx.ml.LinearRegressor ai.onnx.ml.SVMClassifier ai.onnx.ml.SVMRegressor"
        ),
        "batch_matmul": "Einsum AffineGrid Det",
        "conv": "Conv ConvInteger QLinearConv ConvTranspose DeformConv CausalConvWithState",
        "pool": (
            "MaxPool AveragePool LpPool GlobalMaxPool GlobalAveragePool GlobalLpPool GridSample RoiAlign MaxRoiPool"
        ),
        "normalization": (
            "BatchNormalization InstanceNormalization LayerNormalization GroupNormalization RMSNormalization LRN "
            "MeanVarianceNormalization LpNormalization ai.onnx.ml.Normalizer"
        ),
        "softmax": "Softmax LogSoftmax",
        "loss": "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss",
        "attention": "Attention LinearAttention ai.onnx.preview.FlexAttention",
        "elementwise": (
            "Add Sub Mul Div Mod Pow Neg Abs Sqrt Exp Log Reciprocal Sign Floor Ceil Round Sin Cos Tan Asin Acos Atan "
            "Sinh Cosh Asinh Acosh Atanh Erf Max Min Mean Sum Clip Where Equal Less LessOrEqual Greater GreaterOrEqual "
            "And Or Not Xor BitShift BitwiseAnd BitwiseOr BitwiseNot BitwiseXor IsNaN IsInf PRelu Trilu QuantizeLinear "
            "DequantizeLinear DynamicQuantizeLinear RotaryEmbedding ai.onnx.ml.Binarizer ai.onnx.ml.Imputer "
            "ai.onnx.ml.Scaler"
        ),
        "activation": (
            "Relu LeakyRelu ThresholdedRelu Elu Selu Celu Gelu Softplus Softsign Sigmoid HardSigmoid HardSwish Tanh "
            "Mish Swish SwiGLU Shrink"
        ),
        "reduce": (
            "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
            "ReduceSumSquare ArgMax ArgMin CumSum CumProd TopK Hardmax NonMaxSuppression NonZero Unique DFT STFT "
            "TfIdfVectorizer ai.onnx.ml.TreeEnsemble ai.onnx.ml.TreeEnsembleClassifier ai.onnx.ml.TreeEnsembleRegressor"
        ),
        "concat": "Concat Pad ai.onnx.ml.FeatureVectorizer",
        "split": "Split",
        "slice": "Slice CenterCropPad",
        "transpose": "Transpose SpaceToDepth DepthToSpace ReverseSequence",
        "reshape": "Reshape Squeeze Unsqueeze Flatten Identity Resize Upsample Col2Im BitCast",
        "gather": (
            "Gather GatherElements GatherND OneHot Compress ai.onnx.ml.ArrayFeatureExtractor ai.onnx.ml.OneHotEncoder "
            "ai.onnx.ml.LabelEncoder ai.onnx.ml.CategoryMapper"
        ),
        "scatter": "Scatter ScatterElements ScatterND MaxUnpool TensorScatter",
        "cast": "Cast CastLike",
        "fill": (
            "Constant ConstantOfShape EyeLike Range Expand Tile HannWindow HammingWindow BlackmanWindow MelWeightMatrix"
        ),
        "update": (
            "ai.onnx.preview.training.Adagrad ai.onnx.preview.training.Adam ai.onnx.preview.training.Momentum"
        ),
        "random": "RandomNormal RandomUniform RandomNormalLike RandomUniformLike Bernoulli Multinomial Dropout",
        "shape": "Shape Size",
    }.items()
    for kind in kinds.split()
}  # fmt: skip

VIEWS = frozenset(("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"))
RESIZES = frozenset(("Resize", "Upsample"))
STATIC = frozenset(("Constant", "Shape", "Size"))  # their outputs are known before the step
SECOND_MATRIX = {"MatMul": 1, "MatMulInteger": 1, "QLinearMatMul": 3}  # the input; with over two dimensions a batch
NEIGHBOURS = {"linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}  # along each axis
WINDOW_FLOPS = {"HannWindow": 4, "HammingWindow": 4, "BlackmanWindow": 7, "MelWeightMatrix": 4}
UPDATES = {"Adagrad": (1, 9), "Adam": (2, 16), "Momentum": (1, 9)}  # states of a parameter, flops an element
VALUED = {"DFT": (1, 2), "STFT": (3,), "NonMaxSuppression": (2,)}  # inputs whose numbers a rule needs


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
    if node.kind == "GridSample" and node.attributes.get("mode") == "nearest":
        return "gather"
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


def _linear_attention(call: NodeCall) -> int:
    """Each step updates the states of all heads by a key and a value, and reads them by a query."""
    queries, values = call.needed(0), call.needed(2)
    heads, groups = call.attribute("q_num_heads", int), call.attribute("kv_num_heads", int)
    rule = call.attribute("update_rule", str, "gated_delta")
    state = (queries.shape[-1] // heads) * (values.shape[-1] // groups)
    per_group = 2 + ("gated" in rule) + 2 * ("delta" in rule)
    return math.prod(queries.shape[:2]) * state * (groups * per_group + 2 * heads)


def _flex_attention(call: NodeCall) -> int:
    return network_flops.attention(call.needed(0), call.needed(1).shape[-2], call.needed(0).shape[1], call.output)


def _grid_sample(call: NodeCall) -> int:
    mode = call.attribute("mode", str, "linear")
    return 0 if mode == "nearest" else network_flops.sampled(call, NEIGHBOURS[mode], len(call.needed(0).shape) - 2)


def _roi_align(call: NodeCall) -> int:
    """Without a sampling ratio a bin has as many samples as pixels: here those of a region as large as the image."""
    ratio = call.attribute("sampling_ratio", int, 0)
    samples = ratio**2 or network_flops.bin_pixels(call.needed(0).shape[2:], call.output.shape[2:])
    return network_flops.sampled(call, 2, 2) * samples


def _roi_pool(call: NodeCall) -> int:
    return call.output.elements * network_flops.bin_pixels(call.needed(0).shape[2:], call.output.shape[2:])


def _dft(call: NodeCall) -> int:
    """The axis is that of `axis` or of the largest signal; a one-sided transform keeps about half of the numbers."""
    signal, spectrum = call.needed(0), call.output
    axis = call.attribute("axis", int, call.attribute("input_2", int, -2))
    one_sided = bool(call.attribute("onesided", int, 0))
    length = call.attribute("input_1", int, signal.shape[axis] if one_sided else spectrum.shape[axis])
    rows = math.prod(spectrum.shape[:-1]) // max(1, spectrum.shape[axis])
    return rows * network_flops.fourier(length, is_real=one_sided or signal.shape[-1] == 1)


def _stft(call: NodeCall) -> int:
    signal, window = call.needed(0), call.input(2)
    whole = signal.shape[1] if len(call.inputs) < 4 else call.output.shape[2]
    length = window.elements or call.attribute("input_3", int, whole)
    is_real = len(signal.shape) < 3 or signal.shape[-1] == 1
    return math.prod(call.output.shape[:2]) * (network_flops.fourier(length, is_real) + window.elements)


def _determinant(call: NodeCall) -> int:
    matrix = call.needed(0)
    return 2 * matrix.elements * matrix.shape[-1] // 3


def _suppression(call: NodeCall) -> int:
    batch, boxes, _ = call.needed(0).shape
    most = call.attribute("input_2", int, boxes) if call.input(2).elements else 0  # by default none is selected
    return network_flops.suppression(batch, call.needed(1).shape[1], boxes, max(0, most))


def _n_grams(call: NodeCall) -> int:
    lengths = call.attribute("max_gram_length", int) - call.attribute("min_gram_length", int) + 1
    return call.needed(0).elements * lengths * (1 + call.attribute("max_skip_count", int)) + call.output.elements


def _scores(call: NodeCall) -> Tensor:
    """The scores of a classifier, its second output, or the result of a regressor."""
    return call.outputs[1] or call.output if len(call.outputs) > 1 else call.output


def _linear(call: NodeCall) -> int:
    return 2 * call.needed(0).elements * (_scores(call).shape or (1,))[-1]


def _vector_machine(call: NodeCall) -> int:
    """A product and a function for each support vector, and its share in each score; without any, a linear model."""
    samples, scores = call.needed(0), (_scores(call).shape or (1,))[-1]
    vectors = call.attribute("n_supports", int, sum(call.attribute("vectors_per_class", list, [])))
    if not vectors:
        return 2 * samples.elements * scores
    rows = samples.elements // max(1, samples.shape[-1])
    return vectors * (2 * samples.elements + rows * (1 + 2 * max(1, scores - 1)))


def _trees(call: NodeCall) -> int:
    """A path through each tree, as long as in balanced trees, and the sum of the leaves."""
    trees, nodes = call.attribute("trees", int), call.attribute("nodes", int)
    depth = max(1, -(-nodes // max(1, trees))).bit_length()
    rows = call.needed(0).elements // max(1, (call.needed(0).shape or (1,))[-1])
    return rows * trees * depth


def _update(call: NodeCall) -> int:
    """The inputs are the rate, the count of updates, and for all parameters: themselves, gradients, each state."""
    states, flops = UPDATES[call.node.kind.rpartition(".")[2]]
    parameters = (len(call.inputs) - 2) // (2 + states)
    return flops * sum(call.needed(2 + index).elements for index in range(parameters))


def _per_element(count: int) -> Rule:
    return lambda call: count * call.output.elements


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
    "ScatterND": lambda call: call.needed(2).elements, "MaxUnpool": input_elements, "Col2Im": input_elements,
    "LinearAttention": _linear_attention, "ai.onnx.preview.FlexAttention": _flex_attention,
    "CausalConvWithState": lambda call: 2 * call.output.elements * call.needed(1).shape[-1],
    "AffineGrid": lambda call: 2 * call.output.elements * call.needed(0).shape[-1],
    "GridSample": _grid_sample, "RoiAlign": _roi_align, "MaxRoiPool": _roi_pool,
    "DFT": _dft, "STFT": _stft, "Det": _determinant, "NonMaxSuppression": _suppression, "TfIdfVectorizer": _n_grams,
    "SwiGLU": _per_element(2), "RotaryEmbedding": _per_element(3), "ai.onnx.ml.Scaler": _per_element(2),
    **{kind: _per_element(count) for kind, count in WINDOW_FLOPS.items()},
    "ai.onnx.ml.LinearClassifier": _linear, "ai.onnx.ml.LinearRegressor": _linear,
    "ai.onnx.ml.SVMClassifier": _vector_machine, "ai.onnx.ml.SVMRegressor": _vector_machine,
    **{f"ai.onnx.ml.TreeEnsemble{kind}": _trees for kind in ("", "Classifier", "Regressor")},
    **{f"ai.onnx.preview.training.{kind}": _update for kind in UPDATES},
}  # fmt: skip
