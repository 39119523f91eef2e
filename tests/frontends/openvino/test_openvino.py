"""OpenVINO models as computation graphs: which ops there are, what they hold and how they hang together."""

import pytest
from support.graphs import edges_of, op_of
from support.openvino_files import const, layer, model, parameter, result, saved

from gnnplace.frontends.openvino.read import read_openvino

WEIGHT = const("w", [32, 3])


@pytest.fixture
def read(tmp_path):
    """Reads a model of these layers."""
    return lambda *layers: read_openvino(saved(tmp_path, model(*layers)))


def two_layers():
    return (
        parameter("x", [4, 3]), const("w0", [32, 3]), const("b0", [1, 32]), const("shape", [2], "I64"), const("w1", [8, 5]),
        layer("MatMul", "__module.layers.0.fc/aten::linear/MatMul", "x w0", [[4, 32]], transpose_b="true"),
        layer("Add", "__module.layers.0.fc/aten::linear/Add", "__module.layers.0.fc/aten::linear/MatMul b0", [[4, 32]]),
        layer("ReLU", "Relu_7", "__module.layers.0.fc/aten::linear/Add", [[4, 32]]),
        layer("Reshape", "__module.layers.1/aten::view/Reshape", "Relu_7 shape", [[16, 8]]),
        layer("MatMul", "y", "__module.layers.1/aten::view/Reshape w1", [[16, 5]]),
        result("y"),
    )  # fmt: skip


def _shortened(name):
    return name.rpartition("/")[2] if "::" in name else name


def test_parameters_weights_and_layers_are_ops(read):
    graph = read(*two_layers())
    assert graph.name == "net"
    assert {(_shortened(src), output, _shortened(dst)) for src, output, dst in edges_of(graph)} == {
        ("x", 0, "MatMul"), ("w0", 0, "w0/read"), ("w0/read", 0, "MatMul"), ("MatMul", 0, "Add"), ("b0", 0, "b0/read"),
        ("b0/read", 0, "Add"), ("Add", 0, "Relu_7"), ("Relu_7", 0, "Reshape"), ("shape", 0, "Reshape"), ("Reshape", 0, "y"),
        ("w1", 0, "w1/read"), ("w1/read", 0, "y"),
    }  # fmt: skip
    kinds = {_shortened(name): (graph.kind[op], graph.canonical_kind[op], bool(graph.kernel[op])) for op, name in enumerate(graph.op_names)}
    assert kinds == {
        "x": ("input", "input", False), "w0": ("initializer", "variable", False), "w0/read": ("read", "variable", False),
        "b0": ("initializer", "variable", False), "b0/read": ("read", "variable", False), "shape": ("Constant", "fill", False),
        "w1": ("initializer", "variable", False), "w1/read": ("read", "variable", False),
        "MatMul": ("MatMul", "matmul", True), "Add": ("Add", "elementwise", True), "Relu_7": ("ReLU", "activation", True),
        "Reshape": ("Reshape", "reshape", False), "y": ("MatMul", "matmul", True),
    }  # fmt: skip


def test_sizes_types_aliases_and_results(read):
    graph = read(*two_layers())
    out = graph.output_ptr
    x, w0, w0_read, relu, y = (op_of(graph, name) for name in ("x", "w0", "w0/read", "Relu_7", "y"))
    view = op_of(graph, "__module.layers.1/aten::view/Reshape")
    assert graph.shape(int(out[x])) == (4, 3) and graph.output_bytes[out[x]] == 48 and graph.output_dtype[int(out[x])] == "float32"
    assert graph.persistent_bytes.sum() == 4 * (3 * 32 + 32 + 8 * 5) and graph.persistent_bytes[w0] == 4 * 3 * 32
    assert graph.output_alias[out[w0_read]] == out[w0] and graph.output_alias[out[view]] == out[relu]
    assert graph.output_is_result.nonzero()[0].tolist() == [out[y]] and graph.shape(int(out[y])) == (16, 5)
    assert graph.flops[y] == 2 * 16 * 5 * 8 and set(graph.phase.values) == {"forward"}


def test_layers_are_module_paths_and_made_up_names_stand_with_their_reader(read):
    graph = read(*two_layers())
    places = {_shortened(name): (graph.layer[op], int(graph.block[op])) for op, name in enumerate(graph.op_names)}
    assert places["Add"] == places["w0"] == places["b0/read"] == ("layers.0.fc", 0)
    assert places["Reshape"] == places["Relu_7"] == ("layers.1", 1)  # the first names its module, the second is read by it
    assert places["y"] == (None, -1) and places["x"] == ("inputs", -1)


def test_names_of_other_frameworks_have_their_scopes(read):
    graph = read(parameter("x", [2]), layer("ReLU", "/blocks.3/act/Relu", "x", [[2]]), result("/blocks.3/act/Relu"))
    assert (graph.layer[1], graph.block[1]) == ("blocks.3/act", 3)


def test_converted_weights_are_the_weights_and_have_the_size_they_are_converted_to(read):
    half = (const("w_half", [32, 3], "FP16"), layer("Convert", "w", "w_half", [[32, 3]], destination_type="f32"))
    rest = (parameter("x", [4, 3]), layer("MatMul", "y", "x w", [[4, 32]], transpose_b="true"), result("y"))
    assert read(*half, *rest).sha256 == read(WEIGHT, *rest).sha256


@pytest.mark.parametrize("precision, size", [("I8", 64 * 32), ("U4", 64 * 32 // 2), ("NF4", 64 * 32 // 2)])
def test_weights_in_few_bits_stay_so(read, precision, size):
    graph = read(
        parameter("x", [4, 64]), const("w8", [32, 2, 32], precision),
        const("zero", [32, 2, 1], precision), const("scale", [32, 2, 1], "FP16"),
        layer("Convert", "w16", "w8", [([32, 2, 32], "FP16")]), layer("Convert", "zero16", "zero", [([32, 2, 1], "FP16")]),
        layer("Subtract", "moved", "w16 zero16", [([32, 2, 32], "FP16")]),
        layer("Multiply", "scaled", "moved scale", [([32, 2, 32], "FP16")]), const("shape", [2], "I64"),
        layer("Reshape", "flat", "scaled shape", [([32, 64], "FP16")]), layer("Convert", "w", "flat", [[32, 64]]),
        layer("MatMul", "y", "x w", [[4, 32]], transpose_b="true"), result("y"),
    )  # fmt: skip
    assert graph.op_names == ("x", "w", "w/read", "y")
    assert graph.persistent_bytes[1] == graph.output_bytes[graph.output_ptr[2]] == size
    assert graph.flops[3] == 2 * 4 * 32 * 64


def test_the_shape_of_an_image_of_bytes_is_no_weight_in_few_bits(read):
    image, size = parameter("x", [4, 6], "U8"), layer("ShapeOf", "s", "x", [([2], "I64")], output_type="i64")
    graph = read(image, size, layer("Reshape", "y", "x s", [([4, 6], "U8")]), result("y"))
    assert graph.output_dtype[int(graph.output_ptr[op_of(graph, "s")])] == "int64"


def test_what_shapes_and_constants_decide_is_known_before_the_step(read):
    graph = read(
        parameter("x", [4, 6]), const("zero", [], "I64"), const("one", [], "I64"), const("far", [1], "I64"),
        layer("ShapeOf", "s", "x", [([2], "I64")], output_type="i64"),
        layer("Gather", "rows", "s zero zero", [([], "I64")]), layer("Concat", "target", "rows far", [([2], "I64")]),
        layer("Reshape", "v", "x target", [[2, 12]]),
        layer("Range", "ids", "zero rows one", [([24], "I64")]), layer("Convert", "mask", "ids", [[24]]),
        layer("Add", "y", "v mask", [[2, 12]]), result("y"),
    )  # fmt: skip
    assert graph.op_names == ("x", "target", "mask", "mask/read", "v", "y")
    kinds = {name: graph.kind[op] for op, name in enumerate(graph.op_names)}
    assert kinds["target"] == "Constant" and kinds["mask"] == "initializer" and graph.persistent_bytes.sum() == 24 * 4


def test_random_numbers_and_unknown_layers_are_not_folded(read):
    found = read(
        const("shape", [2], "I64"), const("low", []), const("high", []),
        layer("RandomUniform", "noise", "shape low high", [[4, 3]], version="opset8"),
        layer("Odd", "mine", "shape", [[4, 3]], version="extension"), layer("Add", "y", "noise mine", [[4, 3]]), result("y"),
    )  # fmt: skip
    graph = found
    assert graph.kernel[op_of(graph, "noise")] and graph.canonical_kind[op_of(graph, "noise")] == "random"
    assert graph.kernel[op_of(graph, "mine")] and graph.kind[op_of(graph, "mine")] == "extension.Odd"
    assert found.uncounted == {"extension.Odd": 1}


def test_a_small_unknown_layer_of_constants_runs_at_each_step(read):
    graph = read(const("a", [2], "I64"), layer("ReadValue", "state", "a", [([2], "I64")]), result("state"))
    assert graph.kernel[op_of(graph, "state")]


def test_weights_that_nobody_reads_are_left_out_and_one_that_many_read_is_read_once(read):
    graph = read(
        parameter("x", [4, 4]), const("w", [4, 4]), const("spare", [9, 9]),
        layer("MatMul", "a", "x w", [[4, 4]]), layer("MatMul", "y", "a w", [[4, 4]]), result("y"),
    )  # fmt: skip
    assert graph.op_names == ("x", "w", "w/read", "a", "y")


def test_several_outputs_keep_their_places_and_unread_ones_cost_nothing(read):
    graph = read(
        parameter("x", [6, 3]), const("axis", [], "I64"), layer("Split", "parts", "x axis", [[2, 3], [2, 3], [2, 3]], num_splits=3),
        layer("MaxPool", "unread", "x", [[6, 3], ([6, 3], "I64")], kernel="1"), layer("ReLU", "y", "parts#2", [[2, 3]]), result("y"),
    )  # fmt: skip
    parts, pool = op_of(graph, "parts"), op_of(graph, "unread")
    assert ("parts", 2, "y") in edges_of(graph)
    assert graph.output_bytes[graph.output_ptr[parts] : graph.output_ptr[parts + 1]].tolist() == [0, 0, 24]
    assert graph.output_bytes[graph.output_ptr[pool] : graph.output_ptr[pool + 1]].tolist() == [72, 0]


def test_parameters_and_weights_may_be_results(read):
    graph = read(parameter("x", [2]), const("w", [30]), result("x", "r0"), result("w", "r1"))
    assert {graph.op_names[graph.output_op[output]] for output in graph.output_is_result.nonzero()[0]} == {"x", "w/read"}


def test_any_order_of_the_file_will_do(read):
    graph = read(result("b"), layer("ReLU", "b", "a", [[2]]), layer("Tanh", "a", "x", [[2]]), parameter("x", [2]))
    assert graph.op_names == ("x", "a", "b")


def test_layers_of_one_name_are_told_apart(tmp_path):
    text = model(parameter("x", [2]), layer("ReLU", "a", "x", [[2]]), layer("Tanh", "b", "a", [[2]]), result("b"))
    graph = read_openvino(saved(tmp_path, text.replace('name="b"', 'name="a"')), "other")
    assert graph.name == "other" and graph.op_names == ("x", "a", "a:1")


def test_strings_stay_on_cpus(read):
    graph = read(parameter("x", [3], "STRING"), layer("StringTensorUnpack", "y", "x", [([3], "I32")]), result("y"))
    assert graph.allowed[op_of(graph, "y")] == "cpu" and graph.output_bytes[0] == 72


def test_the_file_of_weights_is_not_looked_for(tmp_path):
    path = saved(tmp_path, model(*two_layers()))
    assert [found.name for found in tmp_path.iterdir()] == ["net.xml"]
    assert read_openvino(path).num_ops == 13


def test_version_10_is_read(tmp_path):
    assert read_openvino(saved(tmp_path, model(*two_layers(), version="10"))).num_ops == 13
