"""What rarer ONNX nodes cost, those of its other domains among them, each by a figure that is worked out beside it."""

import pytest
from support.graphs import op_of
from support.onnx_files import INT64, constant, helper, model, node, numbers, saved, value, weight

from gnnplace.frontends.onnx import child
from gnnplace.frontends.onnx import read as front_end
from gnnplace.frontends.onnx.read import read_onnx

ML, TRAINING, PREVIEW = "ai.onnx.ml", "ai.onnx.preview.training", "ai.onnx.preview"
DOMAINS = [(ML, 5), (TRAINING, 1), (PREVIEW, 1)]
IMAGE = value("x", [2, 3, 8, 8])
ROWS = value("x", [10, 4])
TOKENS = [value(name, [2, 5, width]) for name, width in (("x", 4 * 6), ("k", 2 * 6), ("v", 2 * 3))]  # 4 heads of 6; 2 of 6 and 3
PARAMETERS = [value("r", []), value("t", [], INT64), *(value(name, [7, 3]) for name in "wgvh")]
TREES = {  # two trees of three nodes each: a root and two leaves
    "nodes_treeids": [0, 0, 0, 1, 1, 1], "nodes_nodeids": [0, 1, 2, 0, 1, 2], "nodes_featureids": [0] * 6, "nodes_values": [0.0] * 6,
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * 2, "nodes_truenodeids": [1, 0, 0] * 2, "nodes_falsenodeids": [2, 0, 0] * 2,
    "target_treeids": [0, 0, 1, 1], "target_nodeids": [1, 2, 1, 2], "target_ids": [0] * 4, "target_weights": [1.0] * 4, "n_targets": 1,
}  # fmt: skip


def linear(rule, **more):
    inputs = "x k v - g b" if "delta" in rule else "x k v - g" if rule == "gated" else "x k v"
    return node("LinearAttention", inputs, "y s", q_num_heads=4, kv_num_heads=2, update_rule=rule, **more)


GATES = [value("g", [2, 5, 2]), value("b", [2, 5, 2])]
STATE = 6 * 3

COSTS = {
    "linear attention": (linear("linear"), TOKENS, [], "attention", 2 * 5 * STATE * (2 * 2 + 4 * 2)),
    "gated linear attention": (linear("gated"), [*TOKENS, GATES[0]], [], "attention", 2 * 5 * STATE * (2 * 3 + 4 * 2)),
    "gated linear attention that corrects itself": (
        linear("gated_delta"), [*TOKENS, *GATES], [], "attention", 2 * 5 * STATE * (2 * 5 + 4 * 2),
    ),
    "a causal convolution": (
        node("CausalConvWithState", "x w", "y s"), [value("x", [2, 6, 9])], [weight("w", [6, 1, 4])], "conv", 2 * 2 * 6 * 9 * 4,
    ),
    "flexible attention": (
        node("FlexAttention", "x k v", "y", domain=PREVIEW),
        [value("x", [2, 4, 6, 8]), value("k", [2, 4, 10, 8]), value("v", [2, 4, 10, 5])], [],
        "attention", 2 * 2 * 4 * 6 * 10 * (8 + 5) + 5 * 2 * 4 * 6 * 10,
    ),
    "sampled linearly": (node("GridSample", "x g", "y"), [IMAGE, value("g", [2, 5, 6, 2])], [], "pool", 2 * 2 * 3 * 5 * 6 * 4),
    "sampled by cubes": (
        node("GridSample", "x g", "y", mode="cubic"), [IMAGE, value("g", [2, 5, 6, 2])], [], "pool", 2 * 2 * 3 * 5 * 6 * 16,
    ),
    "nearest samples": (node("GridSample", "x g", "y", mode="nearest"), [IMAGE, value("g", [2, 5, 6, 2])], [], "gather", 0),
    "a grid of an affine map": (
        node("AffineGrid", "x size", "y"), [value("x", [2, 2, 3])], [numbers("size", 2, 3, 5, 6)], "batch_matmul", 2 * 2 * 5 * 6 * 2 * 3,
    ),
    "aligned regions": (
        node("RoiAlign", "x r b", "y", output_height=2, output_width=4, sampling_ratio=3),
        [IMAGE, value("r", [7, 4]), value("b", [7], INT64)],
        [], "pool", 2 * 4 * 7 * 3 * 2 * 4 * 9,
    ),
    "pooled regions": (
        node("MaxRoiPool", "x r", "y", pooled_shape=[2, 4]), [IMAGE, value("r", [7, 5])], [], "pool", 7 * 3 * 2 * 4 * (4 * 2),
    ),
    "a transform": (node("DFT", "x", "y"), [value("x", [3, 16, 2])], [], "reduce", 3 * 5 * 16 * 4),
    "a transform of real numbers": (node("DFT", "x", "y"), [value("x", [3, 16, 1])], [], "reduce", 3 * 5 * 16 * 4 // 2),
    "half a transform along another axis": (
        node("DFT", "x n axis", "y", onesided=1), [value("x", [16, 3, 1])], [constant("n", 32), constant("axis", 0)], "reduce",
        3 * 5 * 32 * 5 // 2,
    ),
    "transforms of windows": (
        node("STFT", "x step w", "y"), [value("x", [2, 64, 1])], [constant("step", 8), weight("w", [16])], "reduce",
        2 * 7 * (5 * 16 * 4 // 2 + 16),
    ),
    "determinants": (node("Det", "x", "y"), [value("x", [5, 6, 6])], [], "batch_matmul", 5 * 2 * 6**3 // 3),
    "suppression": (
        node("NonMaxSuppression", "x s most", "y"), [value("x", [2, 100, 4]), value("s", [2, 3, 100])], [constant("most", [20])], "reduce",
        10 * 2 * 3 * 100 * 20,
    ),
    "a gated activation": (node("SwiGLU", "x x", "y"), [ROWS], [], "activation", 2 * 40),
    "added columns": (
        node("Col2Im", "x image block", "y"), [value("x", [1, 5, 5])], [numbers("image", 5, 5), numbers("block", 1, 5)], "reshape", 25,
    ),
    "a window": (node("BlackmanWindow", "n", "y"), [value("n", [], INT64)], [], "fill", 7 * 12),
    "n-grams": (
        node("TfIdfVectorizer", "x", "y", mode="TF", min_gram_length=1, max_gram_length=2, max_skip_count=3, ngram_counts=[0, 2],
             ngram_indexes=[0, 1, 2], pool_int64s=[2, 3, 5, 4, 6]),
        [value("x", [12], INT64)], [], "reduce", 12 * 2 * 4 + 3,
    ),
    "a scaler": (node("Scaler", "x", "y", domain=ML, offset=[0.0], scale=[1.0]), [ROWS], [], "elementwise", 80),
    "a linear regression": (
        node("LinearRegressor", "x", "y", domain=ML, coefficients=[0.0] * 12, targets=3), [ROWS], [], "matmul", 2 * 10 * 4 * 3,
    ),
    "support vectors": (
        node("SVMRegressor", "x", "y", domain=ML, coefficients=[0.0] * 6, support_vectors=[0.0] * 24, n_supports=6, kernel_type="RBF"),
        [ROWS], [], "matmul", 6 * (2 * 40 + 10 * 3),
    ),
    "trees": (node("TreeEnsembleRegressor", "x", "y", domain=ML, **TREES), [ROWS], [], "reduce", 10 * 2 * 2),
    "Adagrad": (node("Adagrad", "r t w g h", "y n", domain=TRAINING), PARAMETERS, [], "update", 9 * 21),
    "Adam": (node("Adam", "r t w g v h", "y n m", domain=TRAINING), PARAMETERS, [], "update", 16 * 21),
    "Momentum": (
        node("Momentum", "r t w g v", "y n", domain=TRAINING, alpha=0.9, beta=1.0, mode="standard", norm_coefficient=0.0), PARAMETERS, [],
        "update", 9 * 21,
    ),
}  # fmt: skip
DECLARED = {  # ONNX infers no shapes of these, so files declare them
    "suppression": value("y", [120, 3], INT64), "a window": value("y", [12]), "flexible attention": value("y", [2, 4, 6, 5]),
    "n-grams": value("y", [3]), "a linear regression": value("y", [10, 3]), "support vectors": value("y", [10, 1]),
    "trees": value("y", [10, 1]), "added columns": value("y", [1, 1, 5, 5]), "a scaler": value("y", [10, 4]),
}  # fmt: skip


@pytest.mark.parametrize("what", COSTS)
def test_flops(what, tmp_path, monkeypatch):
    monkeypatch.setattr(front_end, "read_model", child.read)
    made, inputs, initializers, kind, flops = COSTS[what]
    built = model([made], inputs, [DECLARED.get(what, "y")], initializers, opset=28, domains=DOMAINS)
    graph = read_onnx(str(saved(tmp_path, built)))
    op = op_of(graph, "y")
    assert (graph.canonical_kind[op], int(graph.flops[op])) == (kind, flops)
    assert not graph.uncounted


def test_linear_attention_costs_what_the_products_of_its_definition_cost(tmp_path, monkeypatch):
    """ONNX defines it by a Scan: its products and its sums of states, unrolled, are the rule's figure but for scales and copies."""
    monkeypatch.setattr(front_end, "read_model", child.read)
    states = [value("s", [2, 4, 6, 3])]
    body = helper.make_graph(
        [
            node("Unsqueeze", "k_t last", "column"), node("Unsqueeze", "v_t row", "line"), node("MatMul", "column line", "product"),
            node("Add", "s product", "next"), node("Unsqueeze", "q_t row", "question"), node("MatMul", "question next", "out"),
        ],
        "step", [*states, value("q_t", [2, 4, 6]), value("k_t", [2, 4, 6]), value("v_t", [2, 4, 3])],
        [value("next", [2, 4, 6, 3]), value("out", [2, 4, 1, 3])],
    )  # fmt: skip
    scan = node("Scan", "start x k v", "end y", body=body, num_scan_inputs=3)
    inputs = [value("start", [2, 4, 6, 3]), value("x", [5, 2, 4, 6]), value("k", [5, 2, 4, 6]), value("v", [5, 2, 4, 3])]
    whole = read_onnx(str(saved(tmp_path, model([scan], inputs, ["y"], [numbers("last", -1), numbers("row", -2)]))))
    tokens = [value(name, [2, 5, width]) for name, width in (("x", 24), ("k", 24), ("v", 12))]
    fused = node("LinearAttention", "x k v", "y s", q_num_heads=4, kv_num_heads=4, update_rule="linear")
    one = read_onnx(str(saved(tmp_path, model([fused], tokens, ["y"], opset=28), "one.onnx")))
    assert one.flops.sum() == 2 * 5 * 4 * 18 * (2 + 2)
    assert whole.flops.sum() == one.flops.sum() + 2 * 5 * 4 * 18  # a product and a sum that one multiply-add joins: 3 for 2


def test_a_gradient_of_other_nodes_is_refused(tmp_path):
    gradient = node("Gradient", "x", "d", domain=TRAINING, xs=["x"], y="y")
    built = model([node("Mul", "x x", "y"), gradient], [ROWS], ["d"], domains=DOMAINS)
    with pytest.raises(ValueError, match=r"node 'd' \(ai.onnx.preview.training.Gradient\): differentiates other nodes, and how is not in"):
        child.read(str(saved(tmp_path, built)), {})


def test_an_input_without_elements_is_known(tmp_path):
    """Axes of shape [0] say as much as a constant: all axes."""
    built = model([node("ReduceSum", "x axes", "s"), node("Neg", "s", "y")], [ROWS, value("axes", [0], INT64)], ["y"])
    assert child.read(str(saved(tmp_path, built)), {}).tensors["y"].shape == (1, 1)
