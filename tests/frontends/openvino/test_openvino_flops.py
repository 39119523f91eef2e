"""What OpenVINO layers cost, each kind by a figure that is worked out beside it."""

import pytest
from support.graphs import op_of
from support.openvino_files import const, layer, model, parameter, result, saved

from gnnplace.frontends.openvino.read import read_openvino

X = parameter("x", [2, 6, 8, 8])  # 768 elements
ROWS = parameter("x", [4, 6])
SEQUENCE = parameter("x", [2, 7, 5])  # 2 samples of 7 steps
AXIS = const("axis", [], "I64")


def _cell(kind, gates, states, directions=None):
    """A recurrent layer of 3 states, over all steps where it has directions: the layers, and its rule by hand."""
    rows = [5] if directions is None else [directions]
    given = [const(f"s{index}", [2, 3] if directions is None else [2, directions, 3]) for index in range(states)]
    lengths = [] if directions is None else [const("lengths", [2], "I32")]
    first = [] if directions is None else rows
    weights = [const("w", [*first, gates * 3, 5]), const("r", [*first, gates * 3, 3]), const("b", [*first, gates * 3])]
    before = [*given, *lengths, *weights]
    data = SEQUENCE if directions else parameter("x", [2, 5])
    out = [2, 3] if directions is None else [2, directions, 7, 3]
    return (data, *before, layer(kind, "y", " ".join(["x", *(made["name"] for made in before)]), [out]))


COSTS = {
    "stacked products": ((parameter("x", [2, 3, 8, 4]), parameter("z", [2, 3, 4, 5]), layer("MatMul", "y", "x z", [[2, 3, 8, 5]])),
                         "batch_matmul", 2 * 2 * 3 * 8 * 5 * 4),
    "a product with a matrix": ((ROWS, const("w", [5, 6]), layer("MatMul", "y", "x w", [[4, 5]], transpose_b="true")),
                                "matmul", 2 * 4 * 5 * 6),
    "a turned product": ((ROWS, const("w", [4, 9]), layer("MatMul", "y", "x w", [[6, 9]], transpose_a="true")), "matmul", 2 * 6 * 9 * 4),
    "a product with a vector": ((ROWS, const("w", [6]), layer("MatMul", "y", "x w", [[4]])), "matmul", 2 * 4 * 6),
    "attention by labels": (
        (parameter("x", [2, 3, 7, 4]), parameter("z", [2, 3, 9, 4]),
         layer("Einsum", "y", "x z", [[2, 3, 7, 9]], equation="bhqd,bhkd->bhqk", version="opset7")), "batch_matmul", 2 * 2 * 3 * 7 * 9 * 4,
    ),
    "a convolution": ((X, const("w", [16, 6, 3, 3]), layer("Convolution", "y", "x w", [[2, 16, 8, 8]])), "conv", 2 * 2 * 16 * 64 * 6 * 9),
    "a convolution in groups": (
        (X, const("w", [3, 4, 2, 3, 3]), layer("GroupConvolution", "y", "x w", [[2, 12, 8, 8]])), "conv", 2 * 2 * 12 * 64 * 2 * 9,
    ),
    "a transposed convolution": (
        (X, const("w", [6, 10, 2, 2]), layer("ConvolutionBackpropData", "y", "x w", [[2, 10, 16, 16]])), "conv", 2 * 768 * 10 * 4,
    ),
    "a transposed convolution in groups": (
        (X, const("w", [3, 2, 5, 2, 2]), layer("GroupConvolutionBackpropData", "y", "x w", [[2, 15, 16, 16]])), "conv", 2 * 768 * 5 * 4,
    ),
    "a deformable convolution": (
        (X, const("o", [2, 18, 8, 8]), const("w", [16, 6, 3, 3]), layer("DeformableConvolution", "y", "x o w", [[2, 16, 8, 8]])),
        "conv", 2 * 2 * 16 * 64 * 6 * 9,
    ),
    "an LSTM cell": (_cell("LSTMCell", 4, 2), "matmul", 2 * (2 * (12 * 5 + 12 * 3) + 17 * 3)),
    "a GRU cell": (_cell("GRUCell", 3, 1), "matmul", 2 * (2 * (9 * 5 + 9 * 3) + 14 * 3)),
    "a plain cell": (_cell("RNNCell", 1, 1), "matmul", 2 * (2 * (3 * 5 + 3 * 3) + 3 * 3)),
    "an LSTM in two directions": (_cell("LSTMSequence", 4, 2, 2), "matmul", 14 * (2 * 2 * (12 * 5 + 12 * 3) + 17 * 2 * 3)),
    "a GRU": (_cell("GRUSequence", 3, 1, 1), "matmul", 14 * (2 * (9 * 5 + 9 * 3) + 14 * 3)),
    "a plain recurrence": (_cell("RNNSequence", 1, 1, 1), "matmul", 14 * (2 * (3 * 5 + 3 * 3) + 3 * 3)),
    "attention": (
        (parameter("x", [2, 4, 6, 8]), parameter("k", [2, 4, 10, 8]), parameter("v", [2, 4, 10, 5]),
         layer("ScaledDotProductAttention", "y", "x k v", [[2, 4, 6, 5]], version="opset13")),
        "attention", 2 * 2 * 4 * 6 * 10 * (8 + 5) + 5 * 2 * 4 * 6 * 10,
    ),
    "a pool": ((X, layer("MaxPool", "y", "x", [[2, 6, 3, 4]], kernel="3, 2")), "pool", 2 * 6 * 3 * 4 * 6),
    "an adaptive pool": ((X, const("s", [2], "I64"), layer("AdaptiveAvgPool", "y", "x s", [[2, 6, 2, 2]])), "pool", 768),
    "a normalisation": ((ROWS, AXIS, layer("MVN", "y", "x axis", [[4, 6]], version="opset6")), "normalization", 8 * 24),
    "batch norm": (
        (X, *(const(f"w{i}", [6]) for i in range(4)), layer("BatchNormInference", "y", "x w0 w1 w2 w3", [[2, 6, 8, 8]], version="opset5")),
        "normalization", 2 * 768,
    ),
    "a softmax": ((ROWS, layer("SoftMax", "y", "x", [[4, 6]], version="opset8")), "softmax", 5 * 24),
    "a broadcast sum": ((ROWS, const("w", [5, 1, 6]), layer("Add", "y", "x w", [[5, 4, 6]])), "elementwise", 120),
    "a quantisation": (
        (ROWS, *(const(f"w{i}", []) for i in range(4)), layer("FakeQuantize", "y", "x w0 w1 w2 w3", [[4, 6]])), "elementwise", 4 * 24,
    ),
    "an activation": ((ROWS, layer("Gelu", "y", "x", [[4, 6]], version="opset7")), "activation", 24),
    "a reduction": ((X, AXIS, layer("ReduceMean", "y", "x axis", [[2, 6, 8]])), "reduce", 768),
    "a cast": ((ROWS, layer("Convert", "y", "x", [([4, 6], "FP16")])), "cast", 24),
    "linear interpolation": (
        (X, const("s", [2], "I64"), layer("Interpolate", "y", "x s", [[2, 6, 16, 16]], mode="linear_onnx", version="opset11")),
        "pool", 2 * 4 * 4 * 768,
    ),
    "cubic interpolation": (
        (X, const("s", [2], "I64"), layer("Interpolate", "y", "x s", [[2, 6, 8, 16]], mode="cubic", version="opset11")),
        "pool", 2 * 4 * 2 * 768,
    ),
    "an antialiased interpolation": (
        (X, const("s", [2], "I64"),
         layer("Interpolate", "y", "x s", [[2, 6, 2, 16]], mode="linear_onnx", antialias="true", version="opset11")),
        "pool", 2 * (8 * 2) * 2 * 6 * 2 * 16,
    ),
    "an interpolation that always avoids aliasing": (
        (X, const("s", [2], "I64"), layer("Interpolate", "y", "x s", [[2, 6, 4, 8]], mode="bicubic_pillow", version="opset11")),
        "pool", 2 * (4 * 2) * 2 * 6 * 4 * 8,
    ),
    "the nearest neighbour": (
        (X, const("s", [2], "I64"), layer("Interpolate", "y", "x s", [[2, 6, 16, 16]], mode="nearest", version="opset11")), "reshape", 0,
    ),
    "suppression of boxes": (
        (parameter("x", [2, 100, 4]), parameter("scores", [2, 3, 100]), const("most", [], "I64"),
         layer("NonMaxSuppression", "y", "x scores most", [([2 * 3 * 20, 3], "I64")], version="opset4")),
        "reduce", 10 * 2 * 3 * 100 * 20,
    ),
    "a scattered sum": (
        (ROWS, const("i", [2, 1], "I64"), parameter("u", [2, 6]), layer("ScatterNDUpdate", "y", "x i u", [[4, 6]], version="opset3")),
        "scatter", 12,
    ),
    "a product a group": (
        (parameter("x", [12, 6]), const("w", [3, 6, 5]), const("o", [3], "I32"),
         layer("GroupedMatMul", "y", "x w o", [[12, 5]], version="opset17")), "matmul", 2 * 12 * 6 * 5,
    ),
    "inverses": ((parameter("x", [3, 6, 6]), layer("Inverse", "y", "x", [[3, 6, 6]], version="opset14")), "matmul", 3 * 2 * 6**3),
    "sampled linearly": (
        (X, parameter("g", [2, 3, 5, 2]), layer("GridSample", "y", "x g", [[2, 6, 3, 5]], mode="bilinear", version="opset9")),
        "pool", 2 * 2 * 6 * 3 * 5 * 4,
    ),
    "nearest samples": (
        (X, parameter("g", [2, 3, 5, 2]), layer("GridSample", "y", "x g", [[2, 6, 3, 5]], mode="nearest", version="opset9")), "gather", 0,
    ),
    "aligned regions": (
        (X, parameter("r", [7, 4]), const("i", [7], "I64"),
         layer("ROIAlign", "y", "x r i", [[7, 6, 2, 4]], sampling_ratio="3", version="opset9")), "pool", 2 * 4 * 7 * 6 * 2 * 4 * 9,
    ),
    "pooled regions": (
        (X, parameter("r", [7, 5]), layer("ROIPooling", "y", "x r", [[7, 6, 2, 4]], method="max", version="opset2")),
        "pool", 7 * 6 * 2 * 4 * (4 * 2),
    ),
    "a transform along two axes": (
        (parameter("x", [3, 8, 16, 2]), const("a", [2], "I64"), layer("DFT", "y", "x a", [[3, 8, 16, 2]], version="opset7")),
        "reduce", 3 * 5 * 128 * 7,
    ),
    "a transform of real numbers": (
        (parameter("x", [3, 16]), const("a", [1], "I64"), layer("RDFT", "y", "x a", [[3, 9, 2]], version="opset9")),
        "reduce", 3 * 5 * 16 * 4 // 2,
    ),
    "a transform back to real numbers": (
        (parameter("x", [3, 9, 2]), const("a", [1], "I64"), layer("IRDFT", "y", "x a", [[3, 16]], version="opset9")),
        "reduce", 3 * 5 * 16 * 4 // 2,
    ),
    "transforms of windows": (
        (parameter("x", [2, 64]), const("w", [16]), const("n", [], "I64"), const("s", [], "I64"),
         layer("STFT", "y", "x w n s", [[2, 7, 9, 2]], transpose_frames="false", version="opset15")),
        "reduce", 2 * 7 * (5 * 16 * 4 // 2 + 16),
    ),
    "transforms of windows back": (
        (parameter("x", [2, 9, 7, 2]), const("w", [16]), const("n", [], "I64"), const("s", [], "I64"),
         layer("ISTFT", "y", "x w n s", [[2, 64]], version="opset16")), "reduce", 2 * 7 * (5 * 16 * 4 // 2 + 2 * 16),
    ),
    "suppression by matrices": (
        (parameter("x", [2, 100, 4]), parameter("s", [2, 3, 100]),
         layer("MatrixNms", "y", "x s", [[40, 6]], nms_top_k="20", version="opset8")), "reduce", 10 * 2 * 3 * 20 * 20,
    ),
    "detections": (
        (parameter("x", [2, 400]), parameter("s", [2, 300]), parameter("p", [1, 2, 400]),
         layer("DetectionOutput", "y", "x s p", [[1, 1, 40, 7]], version="opset8")), "reduce", 10 * 2 * 3 * 100 * 20,
    ),
    "proposals": (
        (parameter("x", [1, 6, 5, 5]), parameter("d", [1, 12, 5, 5]), const("i", [3]),
         layer("Proposal", "y", "x d i", [[10, 5]], pre_nms_topn="50", post_nms_topn="10", version="opset4")),
        "reduce", 10 * 50 * 10,
    ),
    "a loss of alignments": (
        (parameter("x", [2, 9, 5]), const("n", [2], "I32"), const("l", [2, 4], "I32"), const("m", [2], "I32"),
         layer("CTCLoss", "y", "x n l m", [[2]], version="opset4")), "loss", 6 * 90 + 10 * 2 * 9 * 9,
    ),
    "a search": (
        (ROWS, const("b", [15]), layer("Bucketize", "y", "x b", [([4, 6], "I64")], version="opset3")), "elementwise", 24 * 4,
    ),
    "colours": ((parameter("x", [1, 6, 4, 1], "U8"), layer("NV12toRGB", "y", "x", [([1, 4, 4, 3], "U8")], version="opset8")),
                "elementwise", 6 * 48),
    "added columns": (
        (parameter("x", [1, 5, 5]), const("s", [2], "I64"), const("k", [2], "I64"),
         layer("Col2Im", "y", "x s k", [[1, 1, 5, 5]], version="opset15")), "reshape", 25,
    ),
    "a move": ((ROWS, const("o", [2], "I64"), layer("Transpose", "y", "x o", [[6, 4]])), "transpose", 0),
    "a concatenation": ((ROWS, layer("Concat", "y", "x x", [[8, 6]])), "concat", 0),
}  # fmt: skip


@pytest.fixture
def cost(tmp_path):
    """The graph of layers of which the last is `y`, and the index of its op."""

    def read(*layers):
        found = read_openvino(saved(tmp_path, model(*layers, result("y"))))
        assert not found.uncounted
        return found, op_of(found, "y")

    return read


@pytest.mark.parametrize("what", COSTS)
def test_flops(cost, what):
    layers, kind, flops = COSTS[what]
    graph, op = cost(*layers)
    assert (graph.canonical_kind[op], int(graph.flops[op])) == (kind, flops)


def test_looking_up_rows_of_a_weight_reads_what_it_yields(cost):
    ids, table = parameter("x", [5], "I64"), const("table", [1000, 4])
    graph, op = cost(ids, table, AXIS, layer("Gather", "y", "table x axis", [[5, 4]], version="opset8"))
    assert graph.canonical_kind[op] == "embedding" and graph.flops[op] == 0
    assert graph.effective_bytes_accessed[op] == 2 * 5 * 4 * 4 + 5 * 8 + 8


def test_gathering_columns_of_a_weight_is_no_embedding(cost):
    ids, table = parameter("x", [5], "I64"), const("table", [1000, 4])
    graph, op = cost(ids, table, AXIS, layer("Gather", "y", "table x axis", [[1000, 5]], version="opset8"))
    assert graph.canonical_kind[op] == "gather"


def test_sums_of_rows_read_the_rows(cost):
    ids, table = parameter("x", [20], "I64"), const("table", [1000, 4])
    graph, op = cost(ids, table, const("o", [5], "I64"), layer("EmbeddingBagOffsetsSum", "y", "table x o", [[5, 4]], version="opset3"))
    assert graph.canonical_kind[op] == "embedding" and graph.flops[op] == 20 * 4
    assert graph.effective_bytes_accessed[op] == 20 * 16 + 5 * 16 + 20 * 8 + 5 * 8


def test_searching_needs_a_second_copy_and_a_broadcast_reads_what_it_repeats(cost):
    graph, op = cost(ROWS, const("k", [], "I64"), layer("TopK", "y", "x k", [[4, 2], ([4, 2], "I64")], version="opset11"))
    assert graph.workspace_bytes[op] == 96 and graph.flops[op] == 24
    graph, op = cost(ROWS, const("s", [3], "I64"), layer("Broadcast", "y", "x s", [[5, 4, 6]], version="opset3"))
    assert graph.effective_bytes_accessed[op] == 24 * 4 + 3 * 8 + 120 * 4
