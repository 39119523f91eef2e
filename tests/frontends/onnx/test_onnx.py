"""ONNX files as computation graphs: which ops there are, what they hold and how they hang together."""

import os

import pytest
from support.graphs import edges_of, op_of
from support.onnx_files import FLOAT, INT64, helper, model, node, numbers, onnx, saved, value, weight

from gnnplace.frontends.onnx import child
from gnnplace.frontends.onnx import read as front_end
from gnnplace.frontends.onnx.read import read_model, read_onnx


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Reads a model in this process: the child process has tests of its own."""
    monkeypatch.setattr(front_end, "read_model", child.read)
    return lambda built, **options: read_onnx(str(saved(tmp_path, built)), **options)


def two_layers(batch="batch", **more):
    nodes = [
        node("MatMul", "x w0", "h", name="/layers.0/fc/MatMul"),
        node("Add", "h b0", "a", name="/layers.0/fc/Add"),
        node("Relu", "a", "r", name="/layers.0/Relu"),
        node("Reshape", "r shape", "v", name="/layers.1/Reshape"),
        node("Transpose", "v", "t", name="/layers.1/Transpose"),
        node("Gemm", "t w1", "y", name="/layers.1/fc/Gemm", transA=1),
    ]
    initializers = [weight("w0", [3, 32]), weight("b0", [32]), numbers("shape", -1, 32), weight("w1", [32, 5])]
    return model(nodes, [value("x", [batch, 3])], ["y"], initializers, **more)


def test_inputs_weights_and_nodes_are_ops(read):
    graph = read(two_layers(), dims={"batch": 4})
    assert graph.name == "net"
    assert edges_of(graph) == {
        ("x", 0, "/layers.0/fc/MatMul"), ("w0", 0, "w0/read"), ("w0/read", 0, "/layers.0/fc/MatMul"),
        ("/layers.0/fc/MatMul", 0, "/layers.0/fc/Add"), ("b0", 0, "b0/read"), ("b0/read", 0, "/layers.0/fc/Add"),
        ("/layers.0/fc/Add", 0, "/layers.0/Relu"), ("/layers.0/Relu", 0, "/layers.1/Reshape"), ("shape", 0, "/layers.1/Reshape"),
        ("/layers.1/Reshape", 0, "/layers.1/Transpose"), ("/layers.1/Transpose", 0, "/layers.1/fc/Gemm"),
        ("w1", 0, "w1/read"), ("w1/read", 0, "/layers.1/fc/Gemm"),
    }  # fmt: skip
    kinds = {name: (graph.kind[op], graph.canonical_kind[op], bool(graph.kernel[op])) for op, name in enumerate(graph.op_names)}
    assert kinds == {
        "x": ("input", "input", False), "w0": ("initializer", "variable", False), "w0/read": ("read", "variable", False),
        "b0": ("initializer", "variable", False), "b0/read": ("read", "variable", False), "shape": ("Constant", "fill", False),
        "w1": ("initializer", "variable", False), "w1/read": ("read", "variable", False),
        "/layers.0/fc/MatMul": ("MatMul", "matmul", True), "/layers.0/fc/Add": ("Add", "elementwise", True),
        "/layers.0/Relu": ("Relu", "activation", True), "/layers.1/Reshape": ("Reshape", "reshape", False),
        "/layers.1/Transpose": ("Transpose", "transpose", True), "/layers.1/fc/Gemm": ("Gemm", "matmul", True),
    }  # fmt: skip


def test_sizes_types_and_aliases(read):
    graph = read(two_layers(), dims={"batch": 4})
    out = graph.output_ptr
    x, w0, w0_read, relu, view, turned, gemm = (
        op_of(graph, name)
        for name in ("x", "w0", "w0/read", "/layers.0/Relu", "/layers.1/Reshape", "/layers.1/Transpose", "/layers.1/fc/Gemm")
    )
    assert graph.shape(int(out[x])) == (4, 3) and graph.output_bytes[out[x]] == 48 and graph.output_dtype[int(out[x])] == "float32"
    assert graph.persistent_bytes.sum() == 4 * (3 * 32 + 32 + 32 * 5) and graph.persistent_bytes[w0] == 4 * 3 * 32
    assert graph.output_bytes[out[w0]] == 0 and graph.output_bytes[out[w0_read]] == 4 * 3 * 32
    assert graph.output_alias[out[w0_read]] == out[w0] and graph.output_alias[out[view]] == out[relu]
    assert graph.output_alias[out[turned]] == -1  # a transpose moves its data
    assert graph.colocation[w0] == graph.colocation[w0_read] == "w0" and graph.colocation[gemm] is None
    assert graph.output_is_result.nonzero()[0].tolist() == [out[gemm]] and graph.shape(int(out[gemm])) == (4, 5)
    assert graph.flops[gemm] == 2 * 4 * 32 * 5


def test_layers_and_blocks_are_name_scopes_and_weights_have_those_of_their_user(read):
    graph = read(two_layers(), dims={"batch": 4})
    places = {name: (graph.layer[op], int(graph.block[op])) for op, name in enumerate(graph.op_names)}
    assert places["/layers.1/fc/Gemm"] == places["w1"] == places["w1/read"] == ("layers.1/fc", 1)
    assert places["/layers.0/Relu"] == ("layers.0", 0) and places["x"] == ("inputs", -1)
    assert set(graph.phase.values) == {"forward"}


def test_a_weight_that_many_use_is_read_once(read):
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "a w", "b"), node("Add", "a b", "y")]
    graph = read(model(nodes, [value("x", [4, 4])], ["y"], [weight("w", [4, 4]), weight("spare", [3, 9])]))
    assert [name for name in graph.op_names if "w" in name] == ["w", "w/read"]
    assert graph.persistent_bytes[op_of(graph, "spare")] == 108 and "spare/read" not in graph.op_names  # nobody reads it


def test_named_dimensions_are_sized_wherever_they_stand(read):
    inputs = [value("x", ["batch", "length"]), value("mask", ["batch", None])]
    built = model([node("Mul", "x mask", "y")], inputs, [value("y", ["batch", "length"])])
    graph = read(built, dims={"batch": 2, "length": 5, "mask[1]": 5})
    assert graph.shape(int(graph.output_ptr[op_of(graph, "y")])) == (2, 5)


def test_shapes_are_folded_on_the_host_but_data_are_not(read):
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s zero", "rows"), node("Concat", "rows minus", "target", axis=0),
        node("Reshape", "x target", "v"), node("Mul", "v two", "y"),
        node("Constant", "", "c", value=helper.make_tensor("", FLOAT, [2], [0, 0])),
        node("Mul", "c c", "d"), node("Add", "y d", "z"),
    ]  # fmt: skip
    initializers = [numbers("zero", 0), numbers("minus", -1), helper.make_tensor("two", FLOAT, [], [2.0])]
    graph = read(model(nodes, [value("x", [4, 2])], ["z"], initializers))
    kernels = {name: bool(graph.kernel[op]) for op, name in enumerate(graph.op_names)}
    assert [name for name, kernel in kernels.items() if kernel] == ["y", "z"]
    kinds = {name: graph.canonical_kind[op] for op, name in enumerate(graph.op_names)}
    assert kinds["s"] == kinds["rows"] == kinds["target"] == kinds["d"] == "shape"
    assert kinds["zero"] == kinds["two"] == kinds["c"] == "fill" and graph.persistent_bytes.sum() == 0
    assert graph.flops.sum() == 16


def test_views_share_their_buffer_and_dropout_drops_nothing_unless_it_trains(read):
    training = helper.make_tensor("training", onnx.TensorProto.BOOL, [], [True])
    ratio = helper.make_tensor("ratio", FLOAT, [], [0.5])
    nodes = [
        node("Identity", "x", "a"), node("Flatten", "a", "b"), node("Unsqueeze", "b axes", "c"), node("Squeeze", "c axes", "d"),
        node("Dropout", "d", "e unread"), node("Dropout", "e ratio training", "f"),
    ]  # fmt: skip
    graph = read(model(nodes, [value("x", [4, 2, 3])], ["f"], [numbers("axes", 0), training, ratio]))
    roots = [int(graph.output_root[graph.output_ptr[op_of(graph, name)]]) for name in "abcde"]
    assert set(roots) == {int(graph.output_ptr[op_of(graph, "x")])}
    dropout = op_of(graph, "f")
    assert graph.kernel[dropout] and graph.output_alias[graph.output_ptr[dropout]] == -1 and graph.canonical_kind[dropout] == "random"
    assert not any(graph.kernel[op_of(graph, name)] for name in "abcde")


def test_absent_outputs_keep_their_place(read):
    nodes = [node("LSTM", "x w r", "- - cell", hidden_size=4), node("Relu", "cell", "y")]
    graph = read(model(nodes, [value("x", [5, 2, 3])], ["y"], [weight("w", [1, 16, 3]), weight("r", [1, 16, 4])]))
    lstm = op_of(graph, "cell")
    assert [graph.shape(k) for k in range(graph.output_ptr[lstm], graph.output_ptr[lstm + 1])] == [None, None, (1, 2, 4)]
    assert ("cell", 2, "y") in edges_of(graph)


def test_kinds_that_no_table_knows_are_counted_by_their_bytes_and_listed(read):
    nodes = [node("Odd", "x", "a", domain="mine"), node("Odd", "a", "b", domain="mine"), node("Even", "m", "y", domain="mine")]
    built = model(nodes, [value("x", [8]), value("m", [3, 3])], [value("b", [4]), value("y", [1])], value_info=[value("a", [8])])
    graph = read(built)
    assert graph.uncounted == {"mine.Even": 1, "mine.Odd": 2}
    odd = op_of(graph, "b")
    assert graph.canonical_kind[odd] == "other" and graph.kernel[odd] and graph.effective_bytes_accessed[odd] == 32 + 16


def test_functions_are_inlined(read):
    body = [node("Add", "p q", "t", name="sum"), node("Relu", "t", "s")]
    function = helper.make_function("mine", "AddRelu", ["p", "q"], ["s"], body, [helper.make_opsetid("", 21)])
    nodes = [node("AddRelu", "x x", "a", domain="mine"), node("AddRelu", "a x", "y", domain="mine")]
    graph = read(model(nodes, [value("x", [8])], ["y"], functions=[function]))
    assert sorted(filter(None, (graph.kind[op] for op in range(graph.num_ops)))) == ["Add", "Add", "Relu", "Relu", "input"]
    assert graph.flops.sum() == 4 * 8


def test_names_of_nodes_and_values_may_be_the_same(read):
    nodes = [node("Relu", "x", "a", name="x"), node("Relu", "a", "b", name="x"), node("Relu", "b", "y")]
    graph = read(model(nodes, [value("x", [2])], ["y"]))
    assert graph.op_names == ("x", "x:1", "x:2", "y")


def test_strings_stay_on_cpus(read):
    text = onnx.TensorProto.STRING
    graph = read(model([node("Equal", "x x", "y")], [value("x", [3], text)], ["y"]))
    assert graph.allowed[op_of(graph, "y")] == "cpu" and graph.output_bytes[op_of(graph, "x")] == 72


def test_what_graphs_return_may_be_an_input_or_a_weight(read):
    graph = read(model([node("Relu", "x", "y")], [value("x", [2])], ["x", "w", "y"], [weight("w", [30])]))
    results = {graph.op_names[graph.output_op[output]] for output in graph.output_is_result.nonzero()[0]}
    assert results == {"x", "w/read", "y"}


def test_small_types_are_packed(read):
    built = model([node("DequantizeLinear", "q scale", "y")], [value("q", [3], onnx.TensorProto.INT4), value("scale", [])], ["y"])
    graph = read(built)
    assert graph.output_bytes.tolist() == [2, 4, 12] and graph.output_dtype.values[0] == "int4"


def test_external_data_are_counted_and_never_opened(read, monkeypatch):
    tensor = onnx.TensorProto(name="w", data_type=FLOAT, dims=[1000, 1000], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="../../../etc/passwd")
    shape = onnx.TensorProto(name="s", data_type=INT64, dims=[2], data_location=onnx.TensorProto.EXTERNAL)
    shape.external_data.add(key="location", value="/dev/zero")
    built = model([node("MatMul", "x w", "y"), node("Add", "s s", "z")], [value("x", [1, 1000])], ["y", "z"], [tensor, shape])
    opened = []
    really = os.open
    monkeypatch.setattr(os, "open", lambda path, *more, **other: opened.append(path) or really(path, *more, **other))
    graph = read(built)
    assert graph.persistent_bytes.sum() == 4_000_000 and not [path for path in opened if "passwd" in str(path) or "zero" in str(path)]


def test_initializers_that_are_inputs_too_are_variables(read):
    built = model([node("Add", "x w", "y")], [value("x", [30]), value("w", [30])], ["y"], [weight("w", [30])], opset=9)
    built.ir_version = 3
    graph = read(built)
    assert graph.op_names == ("x", "w", "w/read", "y")


def test_a_child_process_reads_the_same(tmp_path):
    file = str(saved(tmp_path, two_layers()))
    assert read_model(file, {"batch": 4}) == child.read(file, {"batch": 4})
