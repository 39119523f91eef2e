"""Hostile files of other programs: ONNX, TensorFlow's GraphDef, OpenVINO's XML."""

from __future__ import annotations

import random
from collections.abc import Iterator
from importlib.util import find_spec

from tests.hostile.command_case import HostileFile
from tests.hostile.documents import EVIL

LAYERS = (
    '<layer id="0" name="x" type="Parameter" version="opset1"><data shape="2,2" element_type="f32"/>'
    '<output><port id="0" precision="FP32"><dim>2</dim><dim>2</dim></port></output></layer>'
    '<layer id="1" name="act" type="ReLU" version="opset1"><data/><input><port id="0"/></input>'
    '<output><port id="1" precision="FP32"><dim>2</dim><dim>2</dim></port></output></layer>'
    '<layer id="2" name="result" type="Result" version="opset1"><data/><input><port id="0"/></input><output/></layer>'
)
EDGES = '<edge from-layer="0" from-port="0" to-layer="1" to-port="0"/><edge from-layer="1" from-port="1" to-layer="2" to-port="0"/>'
XML = f'<?xml version="1.0"?>\n<net name="net" version="11"><layers>{LAYERS}</layers><edges>{EDGES}</edges></net>'
ENTITIES = (
    '<!DOCTYPE net [<!ENTITY a "aaaaaaaaaa">' + "".join(f'<!ENTITY a{k} "{f"&a{k - 1 or str()};" * 10}">' for k in range(1, 9)) + "]>"
)
REPLACED = {
    "a document type": ('<?xml version="1.0"?>', '<?xml version="1.0"?><!DOCTYPE net>', "document type"),
    "entities": ('<?xml version="1.0"?>', ENTITIES, "document type"),
    "a file as an entity": ('<?xml version="1.0"?>', '<!DOCTYPE net [<!ENTITY a SYSTEM "file:///etc/passwd">]>', "document type"),
    "an unknown entity": ('name="act"', 'name="&act;"', "undefined entity"),
    "another root": ("<net", "<html", "root"),
    "an old version": ('version="11"', 'version="7"', "version '7'"),
    "deep nesting": ("<edges>", "<a>" * 100_000, "nested more than 32"),
    "no id": ('<layer id="1"', "<layer", "has no id"),
    "an id of text": ('<layer id="1"', '<layer id="one"', "no whole number"),
    "an id twice": ('<layer id="1"', '<layer id="0"', "id 0"),
    "an id of 1,000 digits": ('<layer id="1"', f'<layer id="{"9" * 1000}"', "no whole number"),
    "a dimension of text": ("<dim>2</dim>", "<dim>two</dim>", "no whole number"),
    "a dimension of a million digits": ("<dim>2</dim>", f"<dim>{'2' * 10**6}</dim>", "no whole number"),
    "a million blanks": ("<dim>2</dim>", f"<dim>{' ' * 10**6}2</dim>", "no whole number"),
    "a dimension below 0": ("<dim>2</dim>", "<dim>-7</dim>", "no fixed size"),
    "a dimension of 2^62": ("<dim>2</dim>", f"<dim>{2**62}</dim>", "more than"),
    "300 dimensions": ("<dim>2</dim>", "<dim>2</dim>" * 300, "dimensions"),
    "an odd precision": ("FP32", EVIL.encode("unicode_escape").decode(), "precision"),
    "a loop": ("ReLU", "Loop", "runs its body as often as"),
    "an odd kind": ('type="ReLU"', 'type="R e"', "no word"),
    "a kind of two lines": ('type="ReLU"', 'type="R&#10;e"', "no word"),
    "an edge to nowhere": ('to-layer="1"', 'to-layer="9"', "no layer has id 9"),
    "an edge twice": (EDGES, EDGES + EDGES, "another edge"),
    "no edges": (EDGES, "", "have an edge"),
    "an edge to itself": ('from-layer="0" from-port="0"', 'from-layer="1" from-port="1"', "cycle"),
    "no layers": (LAYERS, "", "no layers"),
    "an end that is missing": ('to-port="0"', "", "no to-port"),
    "a comment of 3 MB": ("<edges>", f"<!--{'x' * 3 * 10**6}--><edges>", "more than 1048576 bytes"),
    "a name of 3 MB": ('name="act"', f'name="{"x" * 3 * 10**6}"', "more than 1048576"),
    "data of 3 MB": ("<data/>", f'<data a="{"x" * 3 * 10**6}"/>', "more than 1048576"),
    "an element of 3 MB": ("<edges>", f"<{'x' * 3 * 10**6}/><edges>", "more than 1048576"),
    "an instruction of 3 MB": ("<edges>", f"<?x {'x' * 3 * 10**6}?><edges>", "more than 1048576"),
    "a tag that is open": ("</edges>", "", "cut short"),
    "a namespace": ("<net", "<n:net", "root"),
}


def _openvino() -> Iterator[HostileFile]:
    arguments = ("graphs", "show", "./net.xml")
    for name, (before, after, words) in REPLACED.items():
        yield HostileFile("OpenVINO", name, arguments, {"net.xml": XML.replace(before, after, 1).encode()}, f"net.xml: .*({words})")
    for share in range(12):
        yield HostileFile("OpenVINO", f"cut at {share}/12", arguments, {"net.xml": XML.encode()[: len(XML) * share // 12]}, "net.xml: ")
    for name, before, after, words in (
        ("digits", "<dim>2", "<dim>{}", "no whole number"),
        ("a name", 'name="act"', 'name="{}"', "1048576"),
    ):
        yield HostileFile(
            "OpenVINO",
            f"100 MB of {name}",
            arguments,
            {},
            words,
            cpu_s=10,
            prepare=lambda folder, before=before, after=after: (folder / "net.xml").write_text(
                XML.replace(before, after.format("1" * 10**8), 1)
            ),
        )
    yield HostileFile(
        "OpenVINO", "UTF-7", arguments, {"net.xml": XML.replace('"1.0"', '"1.0" encoding="UTF-7"').encode()}, ".", frozenset({0, 4})
    )
    yield HostileFile(
        "OpenVINO", "a layer of escapes", arguments, {"net.xml": XML.replace('"act"', '"&#x202e;&#x9b;"').encode()}, ".", frozenset({0})
    )
    yield from _damaged("OpenVINO", "net.xml", arguments, XML.encode(), 40)


def _damaged(kind: str, file: str, arguments: tuple[str, ...], good: bytes, count: int) -> Iterator[HostileFile]:
    """Files with some bytes changed: they may be good all the same."""
    for seed in range(count):
        draw, data = random.Random(seed), bytearray(good)
        for _ in range(draw.choice((1, 4, 20))):
            data[draw.randrange(len(data))] = draw.randrange(256)
        yield HostileFile(kind, f"bytes changed, seed {seed}", arguments, {file: bytes(data)}, "", frozenset({0, 4}))


def _onnx() -> Iterator[HostileFile]:
    from onnx import TensorProto, helper

    arguments = ("graphs", "show", "./net.onnx")
    relu, x, y = helper.make_node("Relu", ["x"], ["y"]), *(helper.make_tensor_value_info(name, 1, [2, 2]) for name in "xy")

    def model(nodes, inputs=(x,), outputs=(y,), weights=(), name="g"):
        return helper.make_model(
            helper.make_graph(nodes, name, list(inputs), list(outputs), list(weights)),
            opset_imports=[helper.make_opsetid("", 21)],
            ir_version=10,
        )

    outside = TensorProto(name="w", data_type=1, dims=[2, 2], data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="../../../etc/passwd")
    bad = {
        "a cycle": (
            model(
                [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])],
                outputs=[helper.make_tensor_value_info("b", 1, [2, 2])],
            ),
            ".",
        ),
        "an input from nowhere": (model([helper.make_node("Relu", ["z"], ["y"])]), "'z'"),
        "a value twice": (model([relu, relu]), "y"),
        "an evil input": (model([helper.make_node(EVIL, [EVIL], ["y"])]), r"x1b\[2J"),
        "an open dimension": (model([relu], [helper.make_tensor_value_info("x", 1, [EVIL, 2])]), r"x1b\[2J"),
        "2^62 elements": (model([relu], [helper.make_tensor_value_info("x", 1, [2**62, 2**62])]), "x"),
        "a dimension below 0": (model([relu], [helper.make_tensor_value_info("x", 1, [-2, 2])]), "x"),
        "an odd type": (model([relu], [helper.make_tensor_value_info("x", 99, [2, 2])]), "x"),
        "an unknown kind": (model([helper.make_node("Evil", ["x"], ["y"])], outputs=[helper.make_empty_tensor_value_info("y")]), "Evil"),
        "a loop": (model([helper.make_node("Loop", ["", "", "x"], ["y"], body=model([relu]).graph)]), "Loop"),
        "a kind of a megabyte": (
            model([helper.make_node("x" * 10**6, ["x"], ["z"])], outputs=[helper.make_empty_tensor_value_info("z")]),
            "xxx",
        ),
        "nothing": (model([], outputs=[x]), "."),
        "a window that is text": (model([helper.make_node("MaxPool", ["x"], ["y"], kernel_shape="3")]), "MaxPool"),
    }
    for name, (built, words) in bad.items():
        yield HostileFile("ONNX", name, arguments, {"net.onnx": built.SerializeToString()}, f"net.onnx: .*({words})")
    good = model([helper.make_node("MatMul", ["x", "w"], ["y"])], weights=[outside]).SerializeToString()
    yield HostileFile("ONNX", "weights in another file", arguments, {"net.onnx": good}, ".", frozenset({0}))
    for name, content in {
        "nothing at all": b"",
        "text": b"hello",
        "a pickle": b"cos\nsystem\n(S'touch executed'\ntR.",
        "zeros": bytes(1000),
        "nested": b"\x3a\x7f" * 50_000,
    }.items():
        yield HostileFile("ONNX", name, arguments, {"net.onnx": content}, "net.onnx: ")
    for share in range(1, 8):
        yield HostileFile("ONNX", f"cut at {share}/8", arguments, {"net.onnx": good[: len(good) * share // 8]}, "", frozenset({0, 4}))
    yield from _damaged("ONNX", "net.onnx", arguments, good, 15)


TEXT = """node {{
  name: "x" op: "Placeholder" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }}
  attr {{ key: "shape" value {{ shape {{ dim {{ size: {size} }} }} }} }}
}}
node {{ name: "{name}" op: "{op}" input: "{input}" attr {{ key: "T" value {{ type: {type} }} }} }}"""
DEFAULTS = {"size": "2", "name": "y", "op": "Relu", "input": "x", "type": "DT_FLOAT"}
GRAPHDEFS = {
    "an input from nowhere": ({"input": "z"}, "z"),
    "itself": ({"input": "y"}, "y"),
    "an unknown op": ({"op": "Evil"}, "nothing in it is a result"),
    "two of a name": ({"name": "x"}, "x"),
    "an open dimension": ({"size": "-1"}, "dim"),
    "2^62 elements": ({"size": str(2**62)}, "."),
    "an odd type": ({"type": "DT_EVIL"}, "."),
    "a string": ({"type": "DT_STRING"}, "."),
    "escapes": ({"name": "\\033[2J", "input": "q"}, r"x1b|033"),
    "control flow": ({"op": "While"}, "."),
    "code": ({"op": "PyFunc"}, "."),
    "a file that is read": ({"op": "ReadFile", "type": "DT_STRING"}, "."),
    "text that ends": ({"name": '" } evil {'}, "."),
    "a name of a megabyte": ({"name": "x" * 10**6, "input": "q"}, "."),
}


def _graphdef() -> Iterator[HostileFile]:
    arguments = ("graphs", "show", "./net.pbtxt")
    for name, (change, words) in GRAPHDEFS.items():
        yield HostileFile("GraphDef", name, arguments, {"net.pbtxt": TEXT.format(**DEFAULTS | change).encode()}, f"net.pbtxt: .*({words})")
    yield HostileFile("GraphDef", "text that nests", arguments, {"net.pbtxt": b"node { " * 50_000}, "net.pbtxt: ")
    for name, content in {
        "nothing at all": b"",
        "text": b"hello",
        "a pickle": b"cos\nsystem\n(S'touch executed'\ntR.",
        "zeros": bytes(1000),
        "nested": b"\x0a\x7f" * 50_000,
    }.items():
        yield HostileFile("GraphDef", name, ("graphs", "show", "./net.pb"), {"net.pb": content}, "net.pb: ")
    yield from _damaged("GraphDef", "net.pbtxt", arguments, TEXT.format(**DEFAULTS).encode(), 6)


def cases() -> Iterator[HostileFile]:
    """All of them, of the packages that are here."""
    yield from _openvino()
    if find_spec("onnx") is not None:
        yield from _onnx()
    if find_spec("tensorflow") is not None:
        yield from _graphdef()
