"""What is refused of an ONNX file: always with one line that names the value, the rule and the place."""

import os
import resource

import pytest
from support.onnx_files import FLOAT, helper, model, node, numbers, onnx, saved, value, weight

from gnnplace.frontends.onnx import checks, child, read
from gnnplace.frontends.onnx.read import read_model, read_onnx
from gnnplace.isolation import limited

X = value("x", [2, 2])
RELU = node("Relu", "x", "y", name="act")


def _branch(name, *nodes, made="b"):
    return helper.make_graph(list(nodes), name, [], [value(made, [1])])


def _if(*nodes):
    return node("If", "c", "y", name="choice", then_branch=_branch("then", *nodes), else_branch=_branch("else", *nodes))


def _function(name, *calls):
    body = [node(call, "p", f"t{index}", domain="mine") for index, call in enumerate(calls)] + [node("Relu", "p", "s")]
    return helper.make_function("mine", name, ["p"], ["s"], body, [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)])


def _raw(name, shape, data):
    return onnx.TensorProto(name=name, data_type=FLOAT, dims=shape, raw_data=data)


CONSTANT = node("Constant", "", "b", value=helper.make_tensor("", FLOAT, [1], [0]))
CONDITION = value("c", [], onnx.TensorProto.BOOL)
DOUBLING = [_function(f"f{level}", f"f{level - 1}", f"f{level - 1}") for level in range(1, 60)]

REFUSED = {
    "no nodes": (model([], [X]), "graph: has no nodes; is this an ONNX model?"),
    "branches": (model([_if(node("Relu", "x", "b"))], [X, CONDITION], ["y"]), "'choice' (If): its condition 'c' depends on values, which"),
    "constant branches": (model([_if(CONSTANT)], [CONDITION], ["y"]), "(If): its condition 'c' depends on values, which"),
    "a body that does not fit": (
        model([node("Loop", "- - x", "y", name="again", body=_branch("body", CONSTANT))], [X], ["y"]),
        "node 'again' (Loop): its body has 0 inputs and 1 outputs; 3 and 2 fit the node",
    ),
    "a branch in a function": (
        model([node("F", "c", "y", domain="mine")], [CONDITION], ["y"], functions=[
            helper.make_function("mine", "F", ["c"], ["y"], [_if(CONSTANT)], [helper.make_opsetid("", 21)]),
        ]),
        "(If): its condition 'c' depends on values",
    ),
    "a dangling name in a branch": (model([_if(node("Relu", "q", "b"))], [CONDITION], ["y"]), "(Relu): reads 'q', which nothing produces"),
    "a subgraph of an unknown kind": (
        model([node("Odd", "x", "y", domain="mine", name="o", body=_branch("body", node("Relu", "x", "b")))], [X], ["y"]),
        "node 'o' (mine.Odd): has subgraphs, and how often they run is not known: its kind is none of ONNX's",
    ),
    "a cycle": (
        model([node("Add", "x b", "a", name="first"), node("Relu", "a", "b")], [X], ["b"]),
        "node 'first' (Add): reads 'b', which only it or a later node produces: a cycle, or nodes out of order",
    ),
    "a dangling name": (model([node("Add", "x q", "y")], [X], ["y"]), "node 'y' (Add): reads 'q', which nothing produces"),
    "a dangling output": (model([RELU], [X], ["z"]), "output 'z': nothing produces it"),
    "a value made twice": (model([RELU, node("Relu", "x", "y", name="two")], [X], ["y"]), "node 'two' (Relu): produces 'y', which exists"),
    "two inputs of a name": (model([RELU], [X, X], ["y"]), "input 'x': the name is not unique"),
    "two weights of a name": (model([RELU], [X], ["y"], [weight("w", [2]), weight("w", [3])]), "initializer 'w': the name is not unique"),
    "a weight without a name": (model([RELU], [X], ["y"], [weight("", [2])]), "initializer: has no name"),
    "a weight of 2^60 elements": (model([RELU], [X], ["y"], [_raw("w", [2**30, 2**30], b"")]), f"is more than {2**50} bytes"),
    "an input of 2^60 elements": (model([RELU], [value("x", [2**60])], ["y"]), "value 'x': float32[1152921504606846976] is more than"),
    "a result of 2^60 elements": (
        model([node("Expand", "x s", "y")], [value("x", [1])], ["y"], [numbers("s", 2**30, 2**30)]), "its output 'y': float32[1073741824, ",
    ),
    "a negative dimension": (model([RELU], [value("x", [-3])], ["y"]), "value 'x': [-3] has a negative dimension"),
    "a negative weight": (model([RELU], [X], ["y"], [_raw("w", [-2], b"")]), "initializer 'w': [-2] has a negative dimension"),
    "data of another size": (model([RELU], [X], ["y"], [_raw("w", [2], b"12345")]), "initializer 'w': 5 bytes of data for float32[2]"),
    "an unknown type": (model([RELU], [value("x", [2], 99)], ["y"]), "value 'x': unknown data type 99"),
    "a function that calls itself": (model([RELU], [X], ["y"], functions=[_function("f", "g"), _function("g", "f")]), "calls itself"),
    "functions that double": (
        model([node("f59", "x", "y", domain="mine")], [X], ["y"], functions=[_function("f0"), *DOUBLING]), "nodes after inlining",
    ),
    "a kind that ONNX does not know": (
        model([node("Odd", "x", "y", domain="mine", name="o")], [X], ["y"]),
        "node 'o' (mine.Odd): its output 'y': has no shape: its kind is unknown to ONNX; declare it in the graph's value_info",
    ),
    "a shape that depends on values": (model([node("NonZero", "x", "y")], [X], ["y"]), "has the shape [2, ?], which depends on values"),
    "shapes that don't fit": (
        model([node("MatMul", "x w", "y", name="mm")], [X], ["y"], [weight("w", [3, 2])]), "node 'mm' (MatMul): its output 'y': has no",
    ),
    "an input that is missing": (model([node("Relu", "", "y", name="act")], [X], ["y"]), "Input 0 is out of bounds"),
    "an unnamed dimension": (model([RELU], [value("x", [None, 2])], ["y"]), "'x': dimension 0 has no fixed size; set it with --dim 'x[0]="),
    "an input without a rank": (model([RELU], [value("x", None)], ["y"]), "input 'x': must be a tensor of known rank"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refused(tmp_path, what):
    built, message = REFUSED[what]
    with pytest.raises(ValueError) as error:
        child.read(str(saved(tmp_path, built)), {})
    assert message in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 600


def test_dimensions_without_a_size_are_named_with_the_option(tmp_path):
    path = str(saved(tmp_path, model([RELU], [value("x", ["batch", 2])], ["y"])))
    with pytest.raises(ValueError) as error:
        read_onnx(path)
    option = "set it with --dim 'batch=SIZE' (dims={'batch': SIZE})"
    assert str(error.value) == f"{path}: input 'x': dimension 0 ('batch') has no fixed size; {option}"
    with pytest.raises(ValueError, match="dims: 'bach' is no input dimension without a fixed size; those are: batch"):
        child.read(path, {"batch": 2, "bach": 3})
    for size in (0, -1, True, 2**41):
        with pytest.raises(ValueError, match=r"dims: 'batch': .* is no size between 1 and"):
            read_onnx(path, {"batch": size})


def test_more_nodes_than_a_graph_may_have(tmp_path, monkeypatch):
    path = str(saved(tmp_path, model([RELU, node("Relu", "y", "z")], [X], ["z"])))
    monkeypatch.setattr(checks, "MAX_NODES", 1)
    with pytest.raises(ValueError, match="graph: 2 nodes after inlining; at most 1"):
        child.read(path, {})
    monkeypatch.setattr(checks, "MAX_NODES", 2)
    monkeypatch.setattr(checks, "MAX_VALUES", 3)
    with pytest.raises(ValueError, match="graph: its nodes have 4 inputs and outputs; at most 3"):
        child.read(path, {})


@pytest.mark.parametrize(
    "content, message",
    [
        (b"\x00\x01 no protobuf", "can't be parsed: it is no ONNX model, is truncated, is nested too deeply"),
        (b"", "0 bytes; an ONNX file has 1 to"),
        (model([RELU], [X], ["y"]).SerializeToString()[:-5], "can't be parsed: it is no ONNX model, is truncated, is nested too deeply"),
    ],
)
def test_what_is_no_model(tmp_path, content, message):
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_onnx(path)


def test_a_name_that_is_no_text(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(model([node("Relu", "x", "yyyy")], [X], ["yyyy"]).SerializeToString().replace(b"yyyy", b"y\xff\xfey"))
    with pytest.raises(ValueError, match="is not Unicode text"):
        read_onnx(path)


def test_deep_nesting(tmp_path):
    content = b""
    for _ in range(3000):  # types of sequences of sequences
        content = b"\x0a" + _length(content) + content  # Sequence.elem_type
        content = b"\x22" + _length(content) + content  # TypeProto.sequence_type
    declared = b"\x0a\x01x" + b"\x12" + _length(content) + content
    graph = b"\x5a" + _length(declared) + declared
    path = tmp_path / "net.onnx"
    path.write_bytes(b"\x3a" + _length(graph) + graph)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_onnx(path)


def _length(content):
    """The length as a varint."""
    size, coded = len(content), b""
    while size > 127:
        coded, size = coded + bytes([size & 127 | 128]), size >> 7
    return coded + bytes([size])


def test_a_file_that_is_too_large_is_not_opened_by_onnx(tmp_path):
    path = tmp_path / "net.onnx"
    with open(path, "wb") as file:
        file.truncate(2**31)  # a hole: no disk is used
    with pytest.raises(ValueError, match="2147483648 bytes; an ONNX file has 1 to 2147483647"):
        read_onnx(path)


def test_what_is_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "net.onnx")
    with pytest.raises(ValueError, match="is no regular file"):
        read_onnx(tmp_path / "net.onnx")
    with pytest.raises(FileNotFoundError):
        read_onnx(tmp_path / "other.onnx")


def test_a_file_that_needs_too_much_memory_time_or_patience_ends_in_one_line(tmp_path, monkeypatch):
    path = tmp_path / "net.onnx"
    path.write_bytes(b"\x3a" + _length(b"\x0a\x00" * 5_000_000) + b"\x0a\x00" * 5_000_000)  # empty nodes: 2 bytes each in the file alone
    monkeypatch.setattr(read, "CHILD", read.CHILD._replace(memory_bytes=200 * 2**20))
    with pytest.raises(ValueError, match="more memory than"):
        read_onnx(path)
    monkeypatch.setattr(read, "CHILD", read.CHILD._replace(memory_bytes=2**34, cpu_s=1))
    with pytest.raises(ValueError, match="reading it takes more than 1 s of processor time"):
        read_onnx(path)
    monkeypatch.setattr(limited, "LIMIT_S", 0.01)
    with pytest.raises(ValueError, match=r"reading it takes more than 0.01 s"):
        read_onnx(path)


def test_limits_hold_in_the_child_alone(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_CPU)
    read_onnx(saved(tmp_path, model([RELU], [X], ["y"])))
    assert before == (resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_CPU))


def test_attributes_that_are_not_those_of_the_kind(tmp_path):
    unread = node("MaxPool", "x", "y", name="pool")  # without kernel_shape; nobody needs the result
    path = saved(tmp_path, model([unread, node("Relu", "x", "z")], [value("x", [1, 1, 4, 4])], ["z"]))
    with pytest.raises(ValueError, match=r"net.onnx: node 'pool' \(MaxPool\): its inputs or attributes are not those of this kind"):
        read_onnx(path)


def test_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(limited, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'needs the package onnx: pip install "gnnplace\[onnx\]"'):
        read_model(saved(tmp_path, model([RELU], [X], ["y"])), {})
