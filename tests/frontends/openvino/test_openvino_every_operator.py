"""Every operation of OpenVINO has a rule, or a reason why 0 flops are right. A new one of a newer OpenVINO fails by name."""

import importlib

import pytest

from gnnplace.frontends.network.flops import ONE_AN_OUTPUT_ELEMENT, PER_OUTPUT_ELEMENT
from gnnplace.frontends.openvino import flops
from gnnplace.frontends.openvino.xml import SUBGRAPHS


def words(text):
    return set(text.split())


MULTIPLY_OR_REDUCE = words(
    "MatMul GroupedMatMul Einsum Inverse Convolution BinaryConvolution GroupConvolution DeformableConvolution ConvolutionBackpropData "
    "GroupConvolutionBackpropData LSTMCell GRUCell RNNCell LSTMSequence GRUSequence RNNSequence ScaledDotProductAttention MaxPool "
    "AvgPool AdaptiveAvgPool AdaptiveMaxPool ROIAlign ROIAlignRotated ROIPooling PSROIPooling DeformablePSROIPooling GridSample "
    "ExperimentalDetectronROIFeatureExtractor BatchNormInference FakeQuantize Interpolate NonMaxSuppression NMSRotated MatrixNms "
    "MulticlassNms DetectionOutput ExperimentalDetectronDetectionOutput Proposal GenerateProposals "
    "ExperimentalDetectronGenerateProposalsSingleImage EmbeddingBagOffsetsSum EmbeddingBagPackedSum EmbeddingBagOffsets "
    "EmbeddingBagPacked EmbeddingSegmentsSum ScatterUpdate ScatterElementsUpdate ScatterNDUpdate SliceScatter Col2Im DFT IDFT RDFT "
    "IRDFT STFT ISTFT CTCLoss Bucketize SearchSorted NV12toBGR NV12toRGB I420toBGR I420toRGB PriorBox PriorBoxClustered"
)
REDUCE_OR_NORMALIZE = words(
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogicalAnd ReduceLogicalOr CumSum TopK SegmentMax "
    "Unique NonZero CTCGreedyDecoder CTCGreedyDecoderSeqLen ExperimentalDetectronTopKROIs MVN LRN NormalizeL2 GroupNormalization GRN "
    "SoftMax LogSoftmax"
)
MOVE_OR_MAKE_VALUES = words(
    "Concat Pad Split VariadicSplit Slice StridedSlice Transpose SpaceToDepth DepthToSpace SpaceToBatch BatchToSpace ShuffleChannels "
    "ReverseSequence Reverse Roll ReorgYolo Reshape Squeeze Unsqueeze Identity ExtractImagePatches ReadValue Assign Gather "
    "GatherElements GatherND GatherTree OneHot SparseFillEmptyRows Broadcast Tile Range Eye ExperimentalDetectronPriorGridGenerator "
    "ShapeOf"
)
TEXT = {"StringTensorPack", "StringTensorUnpack"}  # the front-end warns of them
WIRING = {"Parameter", "Const", "Result"}
CALLED = {"absolute": "Abs", "ceil": "Ceiling", "constant": "Const", "if_op": "If"}  # a factory with another name


def scalar_functions():
    return {name for name, canonical in flops.CANONICAL.items() if canonical in ONE_AN_OUTPUT_ELEMENT} - MULTIPLY_OR_REDUCE


def test_every_operation_is_of_one_sort():
    pytest.importorskip("openvino")
    sorts = [MULTIPLY_OR_REDUCE, REDUCE_OR_NORMALIZE, scalar_functions(), MOVE_OR_MAKE_VALUES, TEXT, WIRING, set(SUBGRAPHS)]
    names = {name.lower(): name for sort in sorts for name in sort}
    newest, factories = 1, set()
    while importlib.util.find_spec(f"openvino.opset{newest}"):
        opset = importlib.import_module(f"openvino.opset{newest}")
        factories |= {name for name in dir(opset) if name[0].islower() and callable(getattr(opset, name))}
        newest += 1
    assert newest > 16 and len(factories) > 190
    assert {name for name in factories if CALLED.get(name, name).replace("_", "").lower() not in names} == set()
    every = [name for sort in sorts for name in sort]
    assert len(every) == len(set(every))


def test_the_sorts_are_those_of_the_front_end():
    assert set(flops.BY_KIND) == MULTIPLY_OR_REDUCE
    assert flops.CANONICAL.keys() == MULTIPLY_OR_REDUCE | REDUCE_OR_NORMALIZE | scalar_functions() | MOVE_OR_MAKE_VALUES
    for name in REDUCE_OR_NORMALIZE:
        assert flops.CANONICAL[name] == "reduce" or flops.CANONICAL[name] in PER_OUTPUT_ELEMENT, name
    for name in MOVE_OR_MAKE_VALUES:
        assert flops.CANONICAL[name] not in {*ONE_AN_OUTPUT_ELEMENT, *PER_OUTPUT_ELEMENT, "reduce", "matmul", "conv"}, name
