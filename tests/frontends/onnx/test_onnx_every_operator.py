"""Every operator of ONNX has a rule, or a reason why 0 flops are right. A new operator of a newer ONNX fails by name."""

from support.onnx_files import onnx

from gnnplace.frontends.network.flops import ONE_AN_OUTPUT_ELEMENT, PER_OUTPUT_ELEMENT
from gnnplace.frontends.onnx import flops
from gnnplace.frontends.onnx.checks import GRADIENT
from gnnplace.frontends.onnx.sequences import SEQUENCE_KINDS


def words(text):
    return set(text.split())


ML, TRAINING = "ai.onnx.ml.", "ai.onnx.preview.training."

# they multiply or reduce, and each has a rule of its own in the front-end's table
MULTIPLY_OR_REDUCE = words(
    "MatMul MatMulInteger QLinearMatMul Gemm Einsum Conv ConvInteger QLinearConv ConvTranspose DeformConv "
    "CausalConvWithState LSTM GRU RNN Attention LinearAttention ai.onnx.preview.FlexAttention MaxPool AveragePool LpPool "
    "GlobalMaxPool GlobalAveragePool GlobalLpPool MaxRoiPool RoiAlign GridSample AffineGrid Resize Upsample DFT STFT Det "
    "NonMaxSuppression Sum Max Min Mean NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss Scatter ScatterElements ScatterND "
    "MaxUnpool Col2Im TfIdfVectorizer SwiGLU RotaryEmbedding HannWindow HammingWindow BlackmanWindow MelWeightMatrix"
)
MULTIPLY_OR_REDUCE |= {ML + kind for kind in words("LinearClassifier LinearRegressor SVMClassifier SVMRegressor Scaler")}
MULTIPLY_OR_REDUCE |= {f"{ML}TreeEnsemble{what}" for what in ("", "Classifier", "Regressor")}
MULTIPLY_OR_REDUCE |= {TRAINING + kind for kind in ("Adagrad", "Adam", "Momentum")}

# they reduce at 1 flop an input element, or normalise at the flops of their canonical kind
REDUCE_OR_NORMALIZE = words(
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare "
    "ArgMax ArgMin CumSum CumProd TopK Hardmax NonZero Unique BatchNormalization InstanceNormalization LayerNormalization "
    "GroupNormalization RMSNormalization LRN MeanVarianceNormalization LpNormalization Softmax LogSoftmax"
) | {ML + "Normalizer"}

MOVE_OR_MAKE_VALUES = words(
    "Concat Pad Split Slice CenterCropPad Transpose SpaceToDepth DepthToSpace ReverseSequence Reshape Squeeze Unsqueeze Flatten "
    "Identity BitCast Gather GatherElements GatherND OneHot Compress TensorScatter Constant ConstantOfShape EyeLike Range Expand "
    "Tile Shape Size"
) | {ML + kind for kind in words("ArrayFeatureExtractor OneHotEncoder LabelEncoder CategoryMapper FeatureVectorizer")}

# text, pictures and maps: they compute on no tensor of numbers, so their bytes count, and the front-end warns of them
TEXT_AND_MAPS = words("StringNormalizer StringSplit StringConcat RegexFullMatch ImageDecoder") | {
    ML + kind for kind in words("CastMap DictVectorizer ZipMap")
}

CONTROL_FLOW = {"If", "Loop", "Scan", "SequenceMap"} | SEQUENCE_KINDS
REFUSED = {GRADIENT}


def kind(schema):
    return schema.name if schema.domain in ("", "ai.onnx") else f"{schema.domain}.{schema.name}"


def scalar_functions():
    """Elementwise kinds: 1 flop an output element."""
    return {name for name, canonical in flops.CANONICAL.items() if canonical in ONE_AN_OUTPUT_ELEMENT} - MULTIPLY_OR_REDUCE


def test_every_operator_is_of_one_sort():
    sorts = [MULTIPLY_OR_REDUCE, REDUCE_OR_NORMALIZE, scalar_functions(), MOVE_OR_MAKE_VALUES, TEXT_AND_MAPS, CONTROL_FLOW, REFUSED]
    kinds = {kind(schema) for schema in onnx.defs.get_all_schemas_with_history()}
    assert {name: count for name in kinds if (count := sum(name in sort for sort in sorts)) != 1} == {}
    assert not set().union(*sorts) - kinds  # nothing is listed that ONNX does not have


def test_the_sorts_are_those_of_the_front_end():
    assert set(flops._BY_KIND) == MULTIPLY_OR_REDUCE
    for name in REDUCE_OR_NORMALIZE:
        assert flops.CANONICAL[name] == "reduce" or flops.CANONICAL[name] in PER_OUTPUT_ELEMENT, name
    for name in MOVE_OR_MAKE_VALUES:
        assert flops.CANONICAL[name] not in {*ONE_AN_OUTPUT_ELEMENT, *PER_OUTPUT_ELEMENT, "reduce", "matmul", "conv"}, name
    assert not TEXT_AND_MAPS & flops.CANONICAL.keys()  # the front-end warns of a kind without a canonical one
