"""Nodes that are not what their kind says, in files that declare the shapes which inference would not find: one line, no crash."""

import pytest
from support.graphs import op_of
from support.onnx_files import INT64, helper, model, node, onnx, saved, value, weight

from gnnplace.frontends.onnx import child
from gnnplace.frontends.onnx import read as front_end
from gnnplace.frontends.onnx.read import read_onnx

X, Y = value("x", [2, 3, 8, 8]), value("y", [2, 3, 4, 4])
SEQUENCE = value("x", [2, 6, 32])
NOT_OF_THIS_KIND = "its inputs or attributes are not those of this kind"

MALFORMED = {
    "a window that is text": node("MaxPool", "x", "y", kernel_shape="3"),
    "a window that is no list": node("MaxPool", "x", "y", kernel_shape=3),
    "a window of negative sizes": node("MaxPool", "x", "y", kernel_shape=[-3, -3]),
    "no window": node("AveragePool", "x", "y"),
    "an equation that is a number": node("Einsum", "x x", "y", equation=3),
    "an equation for other operands": node("Einsum", "x x", "y", equation="ij,jk,kl->il"),
    "heads that are text": node("Attention", "x x x", "y", q_num_heads="9" * 9, kv_num_heads=2),
    "a transposition that is text": node("Gemm", "x x", "y", transA="yes"),
    "a product of one factor": node("MatMul", "x", "y"),
    "a convolution without a weight": node("Conv", "x", "y"),
    "a convolution whose weight is left out": node("Conv", "x -", "y"),
    "a transposed convolution without a weight": node("ConvTranspose", "x", "y"),
    "a recurrence without weights": node("LSTM", "x", "y"),
    "a scatter of nothing": node("ScatterND", "x x", "y"),
}


@pytest.fixture
def read(tmp_path, monkeypatch):
    """The graph of a model, read in this process."""
    monkeypatch.setattr(front_end, "read_model", child.read)
    return lambda built, dims=None: read_onnx(str(saved(tmp_path, built)), dims)


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_nodes_are_refused(read, what):
    declared = SEQUENCE if MALFORMED[what].op_type == "Attention" else X
    with pytest.raises(ValueError) as error:
        read(model([MALFORMED[what]], [declared], [Y], opset=23))
    assert str(error.value).endswith(f"node 'y' ({MALFORMED[what].op_type}): {NOT_OF_THIS_KIND}")


def test_a_node_that_makes_nothing_and_has_no_name_is_an_op_all_the_same(read):
    graph = read(model([node("Odd", "x", "", domain="mine"), node("Relu", "x", "y")], [X], ["y"]))
    assert graph.op_names == ("x", "mine.Odd", "y")


def test_kinds_and_dimensions_of_several_lines_make_one(read):
    with pytest.raises(ValueError, match=r"node 'y' \(O\\ndd\): its output 'y': has no shape"):
        read(model([node("O\ndd", "x", "y")], [X], ["y"]))
    with pytest.raises(ValueError, match=r"those are: ba\\ntch$"):
        read(model([node("Relu", "x", "y")], [value("x", ["ba\ntch"])], ["y"]), {"ba\ntch": 2, "b": 2})


def test_weights_in_constant_nodes_are_weights(read):
    """Some exporters write all weights as nodes; data that lies elsewhere is not opened."""
    outside = onnx.TensorProto(name="t", data_type=1, dims=[1000, 8], data_location=onnx.TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="../../etc/passwd")
    nodes = [
        node("Constant", "", "table", value=outside), node("Gather", "table x", "rows"),
        node("Constant", "", "w", value=weight("t", [8, 3])), node("MatMul", "rows w", "y"),
        node("Constant", "", "unused", value_ints=range(20)),
    ]  # fmt: skip
    graph = read(model(nodes, [value("x", [5], INT64)], ["y"]))
    assert graph.canonical_kind[op_of(graph, "rows")] == "embedding"
    assert graph.op_names == ("x", "table", "table/read", "rows", "w", "w/read", "y", "unused")
    assert graph.persistent_bytes.tolist() == [0, 32_000, 0, 0, 96, 0, 0, 160]
    assert graph.kernel.tolist() == [False, False, False, True, False, False, True, False]


def test_small_constants_stay_nodes(read):
    made = [node("Constant", "", "s", value=helper.make_tensor("t", 1, [], [2.0]), name="two"), node("Mul", "x s", "y")]
    graph = read(model(made, [X], ["y"]))
    assert graph.op_names == ("x", "two", "y") and graph.persistent_bytes.sum() == 0
