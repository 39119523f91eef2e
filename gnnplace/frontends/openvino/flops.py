"""OpenVINO's operations (opsets 1 to 17): canonical kinds, views of an input, and the flops of a layer.

An unknown operation has the canonical kind "other": it has no flops, so its bytes alone cost time, and the front-end
lists it.

The rules, by operation (one multiply-add is 2 flops, any scalar function 1):

| kind | flops |
|---|---|
| MatMul | 2 x output elements x contracted dimension |
| GroupedMatMul | 2 x elements of the first matrices x output columns |
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
| other suppressions, proposals | 10 for each pair of a box and a box that there is room for |
| scatter, Col2Im | 1 an added element |
| GridSample | 2 an output element and neighbour: 2 (linear), 4 (cubic) an axis; nearest 0 |
| ROIAlign..., ...ROIPooling | 8 a sample, 1 a pooled element; regions of unknown size count as the image |
| (I)DFT, (I)RDFT, (I)STFT | 5 n log2(n) a transform of n complex numbers, half of that of real ones; 1 in a window |
| Inverse | 2 x elements x rows |
| CTCLoss | 6 a logit, 10 a step and state of the alignment |
| NV12to..., I420to... | 6 an output element |
| Bucketize, SearchSorted | 1 an output element and halving of the sorted values |
| PriorBox... | 2 an output element |

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
        "matmul": "MatMul GroupedMatMul Inverse LSTMCell GRUCell RNNCell LSTMSequence GRUSequence RNNSequence",
        "batch_matmul": "Einsum",
        "conv": (
            "Convolution GroupConvolution ConvolutionBackpropData GroupConvolutionBackpropData DeformableConvolution "
            "BinaryConvolution"
        ),
        "pool": (
            "MaxPool AvgPool AdaptiveAvgPool AdaptiveMaxPool GridSample ROIAlign ROIAlignRotated ROIPooling "
            "PSROIPooling DeformablePSROIPooling ExperimentalDetectronROIFeatureExtractor"
        ),
        "normalization": "MVN BatchNormInference LRN NormalizeL2 GroupNormalization GRN",
        "loss": "CTCLoss",
        "softmax": "SoftMax LogSoftmax",
        "attention": "ScaledDotProductAttention",
        "elementwise": (
            "Add Subtract Multiply Divide Mod FloorMod Power Negative Abs Sqrt Exp Log Sign Floor Ceiling Round Sin "
            "Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Erf ErfInv Maximum Minimum Clamp Select Equal NotEqual "
            "Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr LogicalNot LogicalXor BitwiseAnd BitwiseOr "
            "BitwiseNot BitwiseXor BitwiseLeftShift BitwiseRightShift IsNaN IsInf IsFinite SquaredDifference "
            "FakeQuantize FakeConvert Bucketize SearchSorted NV12toBGR NV12toRGB I420toBGR I420toRGB"
        ),
        "activation": (
            "ReLU PReLU Elu Selu Gelu SoftPlus SoftSign Sigmoid HardSigmoid HSigmoid HSwish Tanh Mish Swish RegionYolo"
        ),
        "reduce": (
            "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogicalAnd ReduceLogicalOr "
            "CumSum TopK SegmentMax Unique NonZero NonMaxSuppression NMSRotated MatrixNms MulticlassNms "
            "DetectionOutput Proposal GenerateProposals CTCGreedyDecoder CTCGreedyDecoderSeqLen DFT IDFT RDFT IRDFT "
            "STFT ISTFT ExperimentalDetectronDetectionOutput ExperimentalDetectronGenerateProposalsSingleImage "
            "ExperimentalDetectronTopKROIs"
        ),
        "concat": "Concat Pad",
        "split": "Split VariadicSplit",
        "slice": "Slice StridedSlice",
        "transpose": (
            "Transpose SpaceToDepth DepthToSpace SpaceToBatch BatchToSpace ShuffleChannels ReverseSequence Reverse "
            "Roll ReorgYolo"
        ),
        "reshape": "Reshape Squeeze Unsqueeze Identity Interpolate ExtractImagePatches Col2Im ReadValue Assign",
        "gather": "Gather GatherElements GatherND GatherTree OneHot SparseFillEmptyRows",
        "embedding": (
            "EmbeddingBagOffsetsSum EmbeddingBagPackedSum EmbeddingBagOffsets EmbeddingBagPacked EmbeddingSegmentsSum"
        ),
        "scatter": "ScatterUpdate ScatterElementsUpdate ScatterNDUpdate SliceScatter",
        "cast": "Convert ConvertLike ConvertPromoteTypes",
        "fill": (
            "Broadcast Tile Range Eye PriorBox PriorBoxClustered ExperimentalDetectronPriorGridGenerator"
        ),
        "random": "RandomUniform Multinomial",
        "shape": "ShapeOf",
    }.items()
    for kind in kinds.split()
}  # fmt: skip

VIEWS = frozenset(("Reshape", "Squeeze", "Unsqueeze", "Identity"))
NEIGHBOURS = {
    "linear": 2,
    "bilinear": 2,
    "bicubic": 4,
    "linear_onnx": 2,
    "bilinear_pillow": 2,
    "cubic": 4,
    "bicubic_pillow": 4,
}  # along each axis


ALIGNMENT_FLOPS = 10  # forwards and backwards: sums of the paths from three states, in logarithms


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
    if node.kind == "GridSample" and node.attributes.get("mode") == "nearest":
        return "gather"
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
    return network_flops.suppression(batch, classes, boxes, selected)


def _number(call: NodeCall, name: str, default: int) -> int:
    return int(call.node.attributes.get(name, default))


def _room(call: NodeCall, name: str, boxes: int) -> int:
    """The number of boxes that an attribute leaves room for; all where it is absent or negative."""
    room = _number(call, name, -1)
    return room if room >= 0 else boxes


def _suppression_by_class(call: NodeCall) -> int:
    """MatrixNms, MulticlassNms: `nms_top_k` boxes of a class are compared with one another."""
    scores = call.needed(1).shape
    boxes, classes = scores[-1], scores[-2]
    room = min(boxes, _room(call, "nms_top_k", boxes))
    return network_flops.suppression(math.prod(scores[:-2]), classes, room, room)


def _detection(call: NodeCall) -> int:
    batch, numbers = call.needed(0).shape[0], call.needed(0).shape[1]
    boxes = max(1, numbers // 4)
    classes = call.needed(1).shape[1] // boxes
    return network_flops.suppression(batch, classes, boxes, call.output.shape[-2] // max(1, batch))


def _regional_detection(call: NodeCall) -> int:
    boxes, classes = call.needed(2).shape
    return network_flops.suppression(1, classes, boxes, call.output.shape[0])


def _proposal(scores: int, before: str, after: str) -> Rule:
    """The `before` best boxes are compared with the `after` ones that are kept. Input `scores` has one for each box."""

    def rule(call: NodeCall) -> int:
        shape = call.needed(scores).shape
        batch = shape[0] if len(shape) > 3 else 1
        boxes = math.prod(shape) // max(1, batch) // (2 if call.node.kind == "Proposal" else 1)
        boxes = min(boxes, _room(call, before, boxes))
        return network_flops.suppression(batch, 1, boxes, _room(call, after, boxes))

    return rule


def _grid_sample(call: NodeCall) -> int:
    mode = call.node.attributes.get("mode", "bilinear")
    return 0 if mode == "nearest" else network_flops.sampled(call, NEIGHBOURS[mode], 2)


def _roi_align(call: NodeCall) -> int:
    """Without a sampling ratio a bin has as many samples as pixels: here those of a region as large as the image."""
    image = call.needed(1 if call.node.kind == "ExperimentalDetectronROIFeatureExtractor" else 0).shape
    samples = _number(call, "sampling_ratio", 0) ** 2 or network_flops.bin_pixels(image[2:], call.output.shape[2:])
    return network_flops.sampled(call, 2, 2) * samples


def _roi_pool(call: NodeCall) -> int:
    if "bilinear" in call.node.attributes.get("mode", call.node.attributes.get("method", "")):
        samples = _number(call, "spatial_bins_x", 1) * _number(call, "spatial_bins_y", 1)
        return network_flops.sampled(call, 2, 2) * samples
    return call.output.elements * network_flops.bin_pixels(call.needed(0).shape[2:], call.output.shape[2:])


def _fourier(call: NodeCall) -> int:
    """A transform along several axes, the last ones; real numbers have no dimension of 2 at their end."""
    axes, is_real = call.needed(1).elements, call.node.kind in ("RDFT", "IRDFT")
    shape = (call.needed(0) if call.node.kind == "RDFT" else call.output).shape
    signal = shape if is_real else shape[:-1]
    length = math.prod(signal[len(signal) - axes :])
    return math.prod(signal[: len(signal) - axes]) * network_flops.fourier(length, is_real)


def _short_fourier(call: NodeCall) -> int:
    """Transforms of real frames, whose spectrum has half of their length and 1 more; windows; sums of overlaps."""
    inverse = call.node.kind == "ISTFT"
    spectrum, window = call.needed(0) if inverse else call.output, call.needed(1).elements
    last = inverse or call.node.attributes.get("transpose_frames", "").lower() in ("true", "1")
    length = 2 * (spectrum.shape[-3 if last else -2] - 1)
    frames = spectrum.elements // max(1, length + 2)
    return frames * (network_flops.fourier(length, is_real=True) + (2 if inverse else 1) * window)


def _inverse(call: NodeCall) -> int:
    return 2 * call.output.elements * call.output.shape[-1]


def _alignment_loss(call: NodeCall) -> int:
    logits, labels = call.needed(0), call.needed(2)
    states = math.prod(logits.shape[:2]) * (2 * labels.shape[1] + 1)
    return (1 + network_flops.SOFTMAX_FLOPS) * logits.elements + ALIGNMENT_FLOPS * states


def _search(sorted_values: int) -> Rule:
    return lambda call: call.output.elements * max(1, call.needed(sorted_values).shape[-1].bit_length())


def _embedding_sum(call: NodeCall) -> int:
    return call.needed(1).elements * math.prod(call.needed(0).shape[1:])


def _per_element(count: int) -> Rule:
    return lambda call: count * call.output.elements


def _scatter(updates: int) -> Rule:
    return lambda call: call.needed(updates).elements


BY_KIND: dict[str, Rule] = {
    "MatMul": _matmul, "GroupedMatMul": lambda call: 2 * call.needed(0).elements * call.output.shape[-1],
    "Einsum": network_flops.einsum,
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
    "SliceScatter": _scatter(1), "Col2Im": input_elements,
    "NMSRotated": _suppression, "MatrixNms": _suppression_by_class, "MulticlassNms": _suppression_by_class,
    "DetectionOutput": _detection, "ExperimentalDetectronDetectionOutput": _regional_detection,
    "Proposal": _proposal(0, "pre_nms_topn", "post_nms_topn"),
    "GenerateProposals": _proposal(3, "pre_nms_count", "post_nms_count"),
    "ExperimentalDetectronGenerateProposalsSingleImage": _proposal(3, "pre_nms_count", "post_nms_count"),
    "GridSample": _grid_sample,
    **dict.fromkeys(("ROIAlign", "ROIAlignRotated", "ExperimentalDetectronROIFeatureExtractor"), _roi_align),
    **dict.fromkeys(("ROIPooling", "PSROIPooling", "DeformablePSROIPooling"), _roi_pool),
    **dict.fromkeys(("DFT", "IDFT", "RDFT", "IRDFT"), _fourier),
    "STFT": _short_fourier, "ISTFT": _short_fourier, "Inverse": _inverse, "CTCLoss": _alignment_loss,
    "Bucketize": _search(1), "SearchSorted": _search(0),
    **dict.fromkeys(("NV12toBGR", "NV12toRGB", "I420toBGR", "I420toRGB"), _per_element(6)),
    **dict.fromkeys(("PriorBox", "PriorBoxClustered"), _per_element(2)),
}  # fmt: skip
