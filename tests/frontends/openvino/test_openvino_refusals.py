"""What is refused of an OpenVINO model: always with one line that names the value, the rule and the place."""

import os
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.openvino_files import const, layer, model, parameter, result, saved

from gnnplace.frontends.openvino import xml
from gnnplace.frontends.openvino.flops import BY_KIND, CANONICAL, VIEWS
from gnnplace.frontends.openvino.read import read_openvino

X = parameter("x", [2, 2])
RELU = layer("ReLU", "act", "x", [[2, 2]])
PLAIN = model(X, RELU, result("act"))
LONG = "a tag, comment or instruction of more than 1048576 bytes"


def _edge(source, source_port, destination, destination_port):
    ends = {"from-layer": source, "from-port": source_port, "to-layer": destination, "to-port": destination_port}
    return "<edge " + " ".join(f'{key}="{value}"' for key, value in ends.items()) + "/>"


def _with(before, after):
    assert before in PLAIN
    return PLAIN.replace(before, after, 1)


REFUSED = {
    "no layers": ('<net version="11"><layers/><edges/></net>', "net.xml: has no layers; is this an OpenVINO IR?"),
    "another root": ("<html><body/></html>", "line 1: its root is <html>; that of an OpenVINO IR is <net>"),
    "an old version": (model(X, version="7"), "line 2: <net>: version '7' is none of 10, 11; convert the model with a newer OpenVINO"),
    "no XML": ("not at all", "line 1: is no XML, or cut short: syntax error"),
    "cut short": (PLAIN[:-40], "is no XML, or cut short"),
    "a document type": (f"<!DOCTYPE net [<!ENTITY a 'b'>]>{PLAIN.partition('?>')[2]}", "a document type (<!DOCTYPE>), and what"),
    "an unknown entity": (_with('name="act"', 'name="&act;"'), "is no XML, or cut short: undefined entity"),
    "deep nesting": (_with("<rt_info>", "<rt_info>" + "<a>" * 40), "elements are nested more than 32 deep"),
    "a long comment": (_with("<rt_info>", f"<!--{'x' * 3_000_000}--><rt_info>"), LONG),
    "a long name": (_with('name="act"', f'name="{"x" * 3_000_000}"'), LONG),
    "a dimension of many digits": (_with("<dim>2</dim>", f"<dim>{'2' * 3_000_000}</dim>"), "...' is no whole number"),
    "a layer without an id": (_with('<layer id="1"', "<layer"), "<layer>: has no id"),
    "an id that is no number": (_with('<layer id="1"', '<layer id="one"'), "<layer>: id 'one' is no whole number"),
    "an id of hundreds of digits": (_with('<layer id="1"', f'<layer id="{"9" * 500}"'), "is no whole number"),
    "a layer without a type": (_with('type="ReLU"', ""), "<layer>: type '' is no word"),
    "a type of two lines": (_with('type="ReLU"', 'type="Re&#10;LU"'), "<layer>: type 'Re\\nLU' is no word"),
    "an id that occurs twice": (_with('<layer id="1"', '<layer id="0"'), "'act' (ReLU): its id 0 is that of layer 'x' (Parameter), too"),
    "ports of one id": (_with('<port id="1" ', '<port id="1"/><port id="1" '), "layer 'act' (ReLU): has two ports of one id"),
    "an edge from nowhere": (_with(_edge(0, 0, 1, 0), _edge(9, 0, 1, 0)), "edge [9, 0, 1, 0]: no layer has id 9"),
    "an edge to nowhere": (_with(_edge(0, 0, 1, 0), _edge(0, 0, 9, 0)), "edge [0, 0, 9, 0]: no layer has id 9"),
    "an edge from no port": (
        _with(_edge(0, 0, 1, 0), _edge(0, 7, 1, 0)), "edge [0, 7, 1, 0]: layer 'x' (Parameter) has no output port 7",
    ),
    "an edge to no port": (_with(_edge(0, 0, 1, 0), _edge(0, 0, 1, 7)), "edge [0, 0, 1, 7]: layer 'act' (ReLU) has no input port 7"),
    "an edge without an end": (_with(' to-port="0"', ""), "<edge>: has no to-port"),
    "two edges to an input": (
        _with(_edge(0, 0, 1, 0), 2 * _edge(0, 0, 1, 0)), "edge [0, 0, 1, 0]: layer 'act' (ReLU) has another edge to its input 0",
    ),
    "an input without an edge": (_with(_edge(0, 0, 1, 0), ""), "layer 'act' (ReLU): 0 of its 1 inputs have an edge"),
    "a cycle": (
        model(X, layer("Add", "a", "x b", [[2, 2]]), layer("ReLU", "b", "a", [[2, 2]]), result("b")),
        "layer 'a' (Add): lies on or behind a cycle",
    ),
    "a dimension without a size": (
        model(parameter("x", [-1, 3, 224, 224]), layer("ReLU", "act", "x", [[-1, 3, 224, 224]]), result("act")),
        "layer 'x' (Parameter): dimension 0 has no fixed size; give it one before the model is saved: model.reshape({'x': [...]})",
    ),
    "an unknown rank": (
        model(layer("Parameter", "x", "", [[]], shape="...", element_type="f32"), layer("ReLU", "act", "x", [[]]), result("act")),
        "layer 'x' (Parameter): has no fixed rank; give it one before the model is saved",
    ),
    "a shape that depends on values": (
        model(X, layer("NonZero", "where", "x", [([2, -1], "I64")], version="opset3"), result("where")),
        "layer 'where' (NonZero): its output 0 has the shape [2, ?], which depends on values",
    ),
    "a table without rows": (
        model(X, parameter("t", []), layer("EmbeddingBagOffsetsSum", "bag", "t x", [[2, 2]]), result("bag")),
        "layer 'bag' (EmbeddingBagOffsetsSum): its inputs or attributes are not those of this kind",
    ),
    "a view that makes two": (
        model(X, layer("Reshape", "views", "x", [[2, 2], [2, 2]]), result("views#1")),
        "layer 'views' (Reshape): has 2 outputs; a view has one, its input in another shape",
    ),
    "a loop": (
        model(X, layer("Loop", "again", "x", [[2, 2]], version="opset5"), result("again")),
        "line 5: layer 'again' (Loop): runs its body as often as",
    ),
    "time steps": (
        model(X, layer("TensorIterator", "steps", "x", [[2, 2]]), result("steps")),
        "layer 'steps' (TensorIterator): runs its body for each slice",
    ),
    "branches": (
        model(X, layer("If", "choice", "x", [[2, 2]], version="opset8"), result("choice")),
        "layer 'choice' (If): runs one of two bodies, as its condition says",
    ),
    "an unknown precision": (model(parameter("x", [2], "FP99"), result("x")), "'x' (Parameter): its output 0: precision 'FP99' is not"),
    "an input of 2^60 elements": (model(parameter("x", [2**30, 2**30]), result("x")), f"is more than {2**50} bytes or 256 dimensions"),
    "a result of 2^60 elements": (model(X, layer("ReLU", "a", "x", [[2**60]]), result("a")), "layer 'a' (ReLU): its output 0: float32["),
    "too many dimensions": (model(parameter("x", [1] * 300), result("x")), "layer 'x' (Parameter): an output has more than 256 dimensions"),
    "a dimension that is no number": (_with("<dim>2</dim>", "<dim>two</dim>"), "dimension 'two' is no whole number"),
    "data of another size": (
        model(layer("Const", "w", "", [[2, 3]], offset="0", size="25"), result("w")),
        "layer 'w' (Const): 25 bytes of data for float32[2, 3], which has 24",
    ),
    "a view of another size": (
        model(X, const("s", [1], "I64"), layer("Reshape", "v", "x s", [[5]]), result("v")),
        "layer 'v' (Reshape): makes float32[5] of float32[2, 2], which is not as large",
    ),
    "attributes of another kind": (
        model(X, layer("MaxPool", "pool", "x", [[2, 2]]), result("pool")),
        "layer 'pool' (MaxPool): its inputs or attributes are not those of this kind",
    ),
    "too few inputs": (
        model(parameter("x", [2, 3, 4]), layer("LSTMCell", "cell", "x", [[2, 3]]), result("cell")),
        "layer 'cell' (LSTMCell): its inputs or attributes are not those of this kind",
    ),
    "absurd arithmetic": (
        model(parameter("x", [2**20, 2**22]), parameter("z", [2**22, 2**20]), layer("MatMul", "y", "x z", [[2**20, 2**20]]), result("y")),
        "layer 'y' (MatMul): 9223372036854775808 flops are not between 0 and",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refused(tmp_path, what):
    text, message = REFUSED[what]
    path = saved(tmp_path, text)
    with pytest.raises(ValueError) as error:
        read_openvino(path)
    assert message in str(error.value) and str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


@pytest.mark.parametrize("limit, value, message", [
    ("MAX_LAYERS", 2, "there are more than 2 layers"), ("MAX_PORTS", 2, "layers have more than 2 ports"),
    ("MAX_EDGES", 1, "there are more than 1 edges"),
])  # fmt: skip
def test_more_than_a_graph_may_have(tmp_path, monkeypatch, limit, value, message):
    monkeypatch.setattr(xml, limit, value)
    with pytest.raises(ValueError, match=message):
        read_openvino(saved(tmp_path, PLAIN))


def test_what_is_no_regular_file_or_too_large_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.xml")
    with pytest.raises(ValueError, match=r"pipe.xml: is no regular file"):
        read_openvino(tmp_path / "pipe.xml")
    with pytest.raises(FileNotFoundError):
        read_openvino(tmp_path / "other.xml")
    with open(tmp_path / "large.xml", "wb") as file:
        file.truncate(2**29 + 1)  # a hole: no disk is used
    with pytest.raises(ValueError, match=r"536870913 bytes; the .xml of an OpenVINO model has 1 to 536870912"):
        read_openvino(tmp_path / "large.xml")
    with pytest.raises(ValueError, match=r"0 bytes; the \.xml"):
        read_openvino(saved(tmp_path, ""))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-7", "no-such-code", "rot13"])
def test_files_are_utf_8_whatever_they_say(tmp_path, encoding):
    graph = read_openvino(saved(tmp_path, _with('version="1.0"', f'version="1.0" encoding="{encoding}"')))
    assert graph.op_names == ("x", "act")


RICH = model(
    parameter("x", [4, 3]), const("w_half", [8, 3], "FP16"), layer("Convert", "w", "w_half", [[8, 3]]), const("s", [2], "I64"),
    layer("MatMul", "h", "x w", [[4, 8]], transpose_b="true"), layer("Reshape", "v", "h s", [[8, 4]]),
    layer("TopK", "top", "v s", [[8, 1], ([8, 1], "I64")], version="opset11"), layer("ShapeOf", "size", "v", [([2], "I64")]),
    layer("Einsum", "e", "top#0 v", [[4]], equation="ij,ik->k", version="opset7"),
    layer("Interpolate", "i", "v size", [[16, 4]], mode="linear", version="opset11"), result("e", "r0"), result("i", "r1"),
).encode()  # fmt: skip


def _read_or_refused(folder, data):
    path = saved(folder, data)
    try:
        assert read_openvino(path).num_ops > 0
    except ValueError as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error) and len(str(error)) < 600


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mutated")


def test_the_model_that_is_mutated_is_read(folder):
    assert read_openvino(saved(folder, RICH)).num_ops == 10


@settings(max_examples=150, deadline=None)
@given(end=st.integers(1, len(RICH) - 8))
def test_a_file_that_is_cut_short_is_refused(folder, end):
    with pytest.raises(ValueError, match=r"is no XML, or cut short|has no layers"):
        read_openvino(saved(folder, RICH[:end]))


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(RICH) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes_give_a_graph_or_one_line(folder, changes):
    data = bytearray(RICH)
    for place, byte in changes:
        data[place] = byte
    _read_or_refused(folder, bytes(data))


ATTRIBUTES = {"axis": 0, "kernel": "2,2", "mode": "cubic", "equation": "ij,jk->ik", "hidden_size": 2, "transpose_a": "true"}


KINDS = sorted({*BY_KIND, *VIEWS, *{canonical: kind for kind, canonical in CANONICAL.items()}.values(), "Unheard"})


@pytest.mark.parametrize(("rank", "attributes"), [(0, {}), (0, ATTRIBUTES), (3, ATTRIBUTES)])
def test_every_kind_of_any_inputs_and_outputs_gives_a_graph_or_one_line(folder, rank, attributes):
    """Of none to seven inputs, where the last output alone is read; of kinds that cost the same, one."""
    for kind, inputs, outputs in product(KINDS, (0, 1, 2, 4, 7), (1, 2)):
        made = layer(kind, "it", " ".join(["x"] * inputs), [[2] * rank] * outputs, **attributes)
        _read_or_refused(folder, model(parameter("x", [2] * rank), made, result(f"it#{outputs - 1}")))


WORDS = st.sampled_from(
    [b'""', b'"-1"', b'"0"', b'"1"', b'"2"', b'"5"', b'"99999999999999999"', b'"MatMul"', b'"Result"', b'"Const"', b'"Parameter"',
     b'"LSTMSequence"', b'"GroupConvolution"', b'"Gather"', b'"NonMaxSuppression"', b'"ScaledDotProductAttention"', b'"AvgPool"', b'"U4"',
     b'"STRING"', b'"opset3"', b'"a&#10;b"']
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200), WORDS), min_size=1, max_size=4), st.lists(st.integers(0, 40), max_size=2))
@example(changes=[(200, b'"Result"')], without=[])  # a result that a layer reads
def test_changed_values_and_lines_left_out_give_a_graph_or_one_line(folder, changes, without):
    parts = RICH.split(b'"')  # every second one is a value
    for place, word in changes:
        parts[1 + 2 * (place % (len(parts) // 2))] = word.strip(b'"')
    lines = b'"'.join(parts).split(b"\n")
    _read_or_refused(folder, b"\n".join(line for number, line in enumerate(lines) if number not in without))


@settings(max_examples=100, deadline=None)
@given(size=st.integers(-3, 2**63), places=st.lists(st.integers(0, 60), min_size=1, max_size=3))
def test_absurd_dimensions_give_a_graph_or_one_line(folder, size, places):
    parts = RICH.split(b"<dim>")
    for place in places:
        at = 1 + place % (len(parts) - 1)
        parts[at] = str(size).encode() + b"<" + parts[at].partition(b"<")[2]
    _read_or_refused(folder, b"<dim>".join(parts))
