"""What ONNX nodes cost, each kind by a figure that is worked out beside it."""

import pytest
from support.graphs import op_of
from support.onnx_files import INT64, helper, model, node, numbers, saved, value, weight

from gnnplace.frontends.onnx import child
from gnnplace.frontends.onnx import read as front_end
from gnnplace.frontends.onnx.read import read_onnx

X = value("x", [2, 3, 8, 8])  # 384 elements
ROWS = value("x", [4, 6])
SEQUENCE = value("x", [7, 2, 5])  # 7 steps of 2 samples

COSTS = {
    "stacked products": (node("MatMul", "x w", "y"), X, [weight("w", [2, 3, 8, 5])], "batch_matmul", 2 * 2 * 3 * 8 * 8 * 5),
    "a product with a matrix": (node("MatMul", "x w", "y"), X, [weight("w", [8, 5])], "matmul", 2 * 2 * 3 * 8 * 8 * 5),
    "a product with a vector": (node("MatMul", "x w", "y"), ROWS, [weight("w", [6])], "matmul", 2 * 4 * 6),
    "a transposed product": (
        node("Gemm", "x w", "y", transA=1, transB=1), ROWS, [weight("w", [9, 4])], "matmul", 2 * 6 * 9 * 4,
    ),
    "attention by labels": (
        node("Einsum", "x w", "y", equation="bhqd, bhkd -> bhqk"), X, [weight("w", [2, 3, 11, 8])], "batch_matmul", 2 * 2 * 3 * 8 * 11 * 8,
    ),
    "labels and dots": (node("Einsum", "x w", "y", equation="...i,ij->...j"), X, [weight("w", [8, 5])], "batch_matmul", 2 * 384 * 5),
    "a sum by labels": (node("Einsum", "x", "y", equation="ij->i"), ROWS, [], "batch_matmul", 24),
    "a convolution": (node("Conv", "x w", "y", pads=[1, 1, 1, 1]), X, [weight("w", [16, 3, 3, 3])], "conv", 2 * 2 * 16 * 64 * 27),
    "one filter a channel": (
        node("Conv", "x w", "y", group=3, strides=[2, 2]), X, [weight("w", [3, 1, 2, 2])], "conv", 2 * 2 * 3 * 16 * 4,
    ),
    "a transposed convolution": (
        node("ConvTranspose", "x w", "y", strides=[2, 2]), X, [weight("w", [3, 10, 2, 2])], "conv", 2 * 384 * 10 * 4,
    ),
    "an LSTM in two directions": (
        node("LSTM", "x w r", "y", hidden_size=3, direction="bidirectional"), SEQUENCE,
        [weight("w", [2, 12, 5]), weight("r", [2, 12, 3])], "matmul", 14 * (2 * (2 * 12 * 5 + 2 * 12 * 3) + 17 * 2 * 3),
    ),
    "a GRU": (
        node("GRU", "x w r", "y", hidden_size=3), SEQUENCE, [weight("w", [1, 9, 5]), weight("r", [1, 9, 3])], "matmul",
        14 * (2 * (45 + 27) + 14 * 3),
    ),
    "a plain recurrence": (
        node("RNN", "x w r", "y", hidden_size=3), SEQUENCE, [weight("w", [1, 3, 5]), weight("r", [1, 3, 3])], "matmul",
        14 * (2 * (15 + 9) + 3 * 3),
    ),
    "a pool": (node("MaxPool", "x", "y", kernel_shape=[3, 2], strides=[2, 2]), X, [], "pool", 2 * 3 * 3 * 4 * 6),
    "a global pool": (node("GlobalAveragePool", "x", "y"), X, [], "pool", 384),
    "linear interpolation": (
        node("Resize", "x - - s", "y", mode="linear"), X, [numbers("s", 2, 3, 16, 12)], "pool", 2 * 4 * 6 * 16 * 12,
    ),
    "cubic interpolation": (
        node("Resize", "x - - s", "y", mode="cubic"), X, [numbers("s", 2, 3, 8, 16)], "pool", 2 * 4 * 6 * 8 * 16,
    ),
    "an antialiased interpolation": (
        node("Resize", "x - - s", "y", mode="linear", antialias=1), X, [numbers("s", 2, 3, 2, 16)], "pool",
        2 * (8 * 2) * 6 * 2 * 16,
    ),
    "the nearest neighbour": (node("Resize", "x - - s", "y"), X, [numbers("s", 2, 3, 16, 16)], "reshape", 0),
    "a normalisation": (node("LayerNormalization", "x s", "y"), ROWS, [weight("s", [6])], "normalization", 8 * 24),
    "a softmax": (node("Softmax", "x", "y"), ROWS, [], "softmax", 5 * 24),
    "a sum of three": (node("Sum", "x x x", "y"), ROWS, [], "elementwise", 48),
    "a mean of three": (node("Mean", "x x x", "y"), ROWS, [], "elementwise", 72),
    "a broadcast sum": (node("Add", "x w", "y"), ROWS, [weight("w", [5, 4, 6])], "elementwise", 120),
    "an activation": (node("Gelu", "x", "y"), ROWS, [], "activation", 24),
    "a reduction": (node("ReduceMean", "x", "y"), X, [], "reduce", 384),
    "a cast": (node("Cast", "x", "y", to=10), ROWS, [], "cast", 24),
    "random numbers": (node("RandomNormalLike", "x", "y"), ROWS, [], "random", 24),
    "a scattered sum": (
        node("ScatterND", "x i u", "y"), ROWS, [helper.make_tensor("i", INT64, [2, 1], [0, 3]), weight("u", [2, 6])], "scatter", 12,
    ),
    "a loss": (
        node("SoftmaxCrossEntropyLoss", "x t", "y"), ROWS, [weight("t", [4], INT64)], "loss", 6 * 24,
    ),
    "a move": (node("Transpose", "x", "y"), ROWS, [], "transpose", 0),
    "a concatenation": (node("Concat", "x x", "y", axis=0), ROWS, [], "concat", 0),
}  # fmt: skip


@pytest.fixture
def cost(tmp_path, monkeypatch):
    """The graph of one node that makes `y`, and the index of its op."""
    monkeypatch.setattr(front_end, "read_model", child.read)

    def read(made, declared, initializers, opset=21):
        graph = read_onnx(str(saved(tmp_path, model([made], [declared], ["y"], initializers, opset=opset))))
        return graph, op_of(graph, "y")

    return read


@pytest.mark.parametrize("what", COSTS)
def test_flops(cost, what):
    made, declared, initializers, kind, flops = COSTS[what]
    graph, op = cost(made, declared, initializers)
    assert (graph.canonical_kind[op], int(graph.flops[op])) == (kind, flops)


@pytest.mark.parametrize("heads, shapes", [(0, ([2, 4, 6, 8], [2, 4, 10, 8], [2, 4, 10, 5])), (4, ([2, 6, 32], [2, 10, 32], [2, 10, 20]))])
def test_attention_counts_two_products_and_a_softmax(cost, heads, shapes):
    attributes = {"q_num_heads": heads, "kv_num_heads": heads} if heads else {}
    queries, keys, values = shapes
    given = [weight("k", keys), weight("v", values)]
    graph, op = cost(node("Attention", "x k v", "y", **attributes), value("x", queries), given, opset=23)
    assert graph.canonical_kind[op] == "attention"
    assert graph.flops[op] == 2 * 2 * 4 * 6 * 10 * (8 + 5) + 5 * 2 * 4 * 6 * 10


def test_looking_up_rows_of_a_weight_reads_what_it_yields(cost):
    graph, op = cost(node("Gather", "table x", "y"), value("x", [5], INT64), [weight("table", [1000, 4])])
    assert graph.canonical_kind[op] == "embedding" and graph.flops[op] == 0
    assert graph.effective_bytes_accessed[op] == 2 * 5 * 4 * 4 + 5 * 8


def test_gathering_from_what_is_computed_is_no_embedding(cost):
    graph, op = cost(node("Gather", "x i", "y"), value("x", [100, 4]), [weight("i", [20], INT64)])
    assert graph.canonical_kind[op] == "gather" and graph.effective_bytes_accessed[op] == 2 * 20 * 4 * 4 + 20 * 8


def test_a_fill_only_writes(cost):
    graph, op = cost(node("ConstantOfShape", "shape", "y"), value("x", [1]), [numbers("shape", 100, 4)])
    assert graph.canonical_kind[op] == "fill" and graph.effective_bytes_accessed[op] == 1600 and graph.kernel[op]


def test_searching_needs_a_second_copy(cost):
    graph, op = cost(node("TopK", "x k", "y i"), ROWS, [numbers("k", 2)])
    assert graph.workspace_bytes[op] == 96 and graph.flops[op] == 24
