"""What is refused of a GraphDef: always with one line that names the value, the rule and the place."""

import os

import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework.graph_pb2 import GraphDef

from gnnplace.frontends.tensorflow import graphdef, graphdef_checks, graphdef_child
from gnnplace.frontends.tensorflow.graphdef import read_graphdef
from gnnplace.isolation import limited

DTYPE = 'attr { key: "dtype" value { type: DT_FLOAT } }'
X = f'node {{ name: "x" op: "Placeholder" {DTYPE} attr {{ key: "shape" value {{ shape {{ dim {{ size: 2 }} }} }} }} }}'
FLOAT = 'attr { key: "T" value { type: DT_FLOAT } }'


def relu(name: str, source: str) -> str:
    return f'node {{ name: "{name}" op: "Relu" input: "{source}" {FLOAT} }}'


def call(name: str, function: str, source: str = "x", op: str = "PartitionedCall") -> str:
    types = "".join(f'attr {{ key: "{key}" value {{ list {{ type: DT_FLOAT }} }} }}' for key in ("Tin", "Tout"))
    return f'name: "{name}" op: "{op}" input: "{source}" {types} attr {{ key: "f" value {{ func {{ name: "{function}" }} }} }}'


def function(name: str, *calls: str) -> str:
    """A function of one tensor that gives it through others, one after the other."""
    bodies, source = "", "p"
    for index, called in enumerate(calls):
        bodies += f"node_def {{ {call(f'c{index}', called, source)} }} "
        source = f"c{index}:output:0"
    signature = f'name: "{name}" input_arg {{ name: "p" type: DT_FLOAT }} output_arg {{ name: "r" type: DT_FLOAT }}'
    last = f'node_def {{ name: "end" op: "Relu" input: "{source}" {FLOAT} }}'
    return f'function {{ signature {{ {signature} }} {bodies} {last} ret {{ key: "r" value: "end:activations:0" }} }} '


def library(*functions: str) -> str:
    return f"library {{ {' '.join(functions)} }}"


def constant(*dims: int) -> str:
    shape = " ".join(f"dim {{ size: {dim} }}" for dim in dims)
    tensor = f"tensor {{ dtype: DT_FLOAT tensor_shape {{ {shape} }} float_val: 1 }}"
    return (
        f'node {{ name: "c" op: "Const" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} attr {{ key: "value" value {{ {tensor} }} }} }}'
    )


DOUBLING = [function(f"f{level}", f"f{level - 1}", f"f{level - 1}") for level in range(1, 60)]
HUGE = constant(2**30, 2**30)
LOOP = (
    'name: "a" op: "StatelessWhile" input: "x" attr { key: "T" value { list { type: DT_FLOAT } } } '
    'attr { key: "cond" value { func { name: "f" } } } attr { key: "body" value { func { name: "f" } } }'
)
OPEN = X.replace("dim { size: 2 }", "unknown_rank: true")

REFUSED = {
    "no nodes": ("", "graph: has no nodes; is this a GraphDef?"),
    "a cycle": (X + relu("a", "b") + relu("b", "a") + relu("c", "b"), "(Relu): takes what it makes itself: a cycle"),
    "an op that takes itself": (relu("a", "a"), "op 'a' (Relu): takes what it makes itself: a cycle"),
    "a dangling input": (X + relu("a", "q:1"), "op 'a' (Relu): takes 'q:1', which no op makes"),
    "two of a name": (X + X, "op 'x' (Placeholder): there are two of this name"),
    "no name": (X + relu("", "x"), "op '': '' is no name"),
    "an unknown kind": (X + 'node { name: "o" op: "Odd" input: "x" }', "nothing in it is a result"),
    "a constant of 2^60 elements": (HUGE + relu("a", "c"), f"op 'c' (Const): [1073741824, 1073741824] is more than {2**50}"),
    "a negative dimension": (constant(-3), "op 'c' (Const): [-3] has a negative dimension"),
    "too many dimensions": (constant(*[1] * 300), "or 256 dimensions"),
    "a placeholder without a rank": (OPEN + relu("a", "x"), "op 'x' (Placeholder): has no rank; set its shape where the graph is made"),
    "a file": (
        X + 'node { name: "f" op: "ReadFile" input: "x" }', "op 'f' (ReadFile): opens files or runs code of others; a step has no such op",
    ),
    "a file in a function": (
        X + library(function("f").replace("Relu", "ReadFile")) + f"node {{ {call('a', 'f')} }}", "op 'end' (ReadFile): opens files",
    ),
    "a missing function": (X + f"node {{ {call('a', 'f')} }}", "op 'a': calls 'f', which the library of the graph doesn't have"),
    "a function that calls itself": (
        X + library(function("f", "g"), function("g", "f")) + f"node {{ {call('a', 'f')} }}", "calls itself, directly or through others",
    ),
    "functions that double": (
        X + library(function("f0"), *DOUBLING) + f"node {{ {call('a', 'f59')} }}", "nodes, functions inlined, are more than 1000000",
    ),
    "a function of other arguments": (
        X + library(function("f")) + f"node {{ {call('a', 'f')} input: \"x\" }}", "op 'a': gives 2 arguments to a function of 1",
    ),
    "a loop": (X + library(function("f")) + f"node {{ {LOOP} }}", "a step must be flat, but StatelessWhile is a loop; unroll it"),
    "shapes that don't fit": (
        X + f'node {{ name: "m" op: "MatMul" input: "x" input: "x" {FLOAT} }}', "Shape must be rank 2 but is rank 1",
    ),
    "a kind's attributes": (X + 'node { name: "a" op: "Relu" input: "x:3" ' + FLOAT + "}", "'a'"),
}  # fmt: skip


@pytest.fixture
def saved(tmp_path):
    def save(text: str) -> str:
        path = tmp_path / "net.pb"
        path.write_bytes(text_format.Parse(text, GraphDef()).SerializeToString())
        return str(path)

    return save


@pytest.mark.parametrize("what", REFUSED)
def test_refused(saved, what):
    text, message = REFUSED[what]
    with pytest.raises(ValueError) as error:
        graphdef_child.read(saved(text), {}, ["a:0"] if "loop" in what else [], "net")
    assert message in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 700


def test_what_is_allowed_is_read(saved):
    graph = graphdef_child.read(saved(X + library(function("f")) + f"node {{ {call('a', 'f')} }}" + relu("b", "a")), {}, [], "net")
    assert [kind for kind in graph.kind.values if kind == "Relu"] and graph.flops.sum() == 2 * 2


def test_more_nodes_than_a_graph_may_have(saved, monkeypatch):
    path = saved(X + relu("a", "x"))
    monkeypatch.setattr(graphdef_checks, "MAX_INPUTS", 0)
    with pytest.raises(ValueError, match="graph: its nodes name 1 inputs, which are more than 0"):
        graphdef_child.read(path, {}, [], "net")
    monkeypatch.setattr(graphdef_checks, "MAX_NODES", 1)
    with pytest.raises(ValueError, match="graph: 2 nodes are more than 1"):
        graphdef_child.read(path, {}, [], "net")


DEEP = "node { name: 'x' op: 'Relu' " + "attr { key: 'f' value { func { " * 400 + "} } } " * 400 + "}"


@pytest.mark.parametrize(
    "name, content",
    [
        ("net.pb", b"\x00\x01 no protobuf"),
        ("net.pb", text_format.Parse(X, GraphDef()).SerializeToString()[:-5]),
        ("net.pbtxt", b"node { name: "),
        ("net.pbtxt", b"\xff\xfe"),
        ("net.pbtxt", DEEP.encode()),
    ],
    ids=["no protobuf", "cut short", "text cut short", "no text", "too deep"],
)
def test_what_is_no_graphdef(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match="can't be parsed: it is no GraphDef, cut short, nested too deeply") as error:
        graphdef_child.read(str(tmp_path / name), {}, [], "net")
    assert "\n" not in str(error.value)


def test_what_is_not_opened_at_all(tmp_path, monkeypatch):
    with open(tmp_path / "net.pb", "wb") as file:
        file.truncate(2**31)  # a hole: no disk is used
    with pytest.raises(ValueError, match="2147483648 bytes; a GraphDef has 1 to 2147483647"):
        read_graphdef(tmp_path / "net.pb")
    os.mkfifo(tmp_path / "pipe.pb")
    with pytest.raises(ValueError, match="is no regular file"):
        read_graphdef(tmp_path / "pipe.pb")
    with pytest.raises(FileNotFoundError):
        read_graphdef(tmp_path / "other.pb")
    with pytest.raises(ValueError, match=r"is a SavedModel, not a GraphDef; give GRAPH as FILE.py:FUNCTION"):
        read_graphdef(tmp_path / "saved_model.pb")
    monkeypatch.setattr(limited, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'needs the package tensorflow: pip install "gnnplace\[tensorflow\]"'):
        read_graphdef(tmp_path / "net.pb")


def test_a_file_that_needs_too_much_memory_or_time_ends_in_one_line(tmp_path, monkeypatch):
    path = tmp_path / "net.pb"
    path.write_bytes(b"\x0a\x06\x0a\x01x\x12\x01a" * 900_000)  # nodes 'x' of kind 'a'
    monkeypatch.setattr(graphdef, "CHILD", graphdef.CHILD._replace(memory_bytes=2**20))
    with pytest.raises(ValueError, match=r"takes? more memory than (1 MiB and three times the file|it may)"):
        read_graphdef(path)
    monkeypatch.setattr(graphdef, "CHILD", graphdef.CHILD._replace(memory_bytes=2**33, cpu_s=1))
    with pytest.raises(ValueError, match="reading it takes more than 1 s of processor time"):
        read_graphdef(path)


def test_a_crash_of_tensorflow_ends_in_one_line(tmp_path, monkeypatch):
    graph = text_format.Parse(X + relu("a", "x"), GraphDef())
    tf.io.write_graph(graph, str(tmp_path), "net.pb", as_text=False)
    monkeypatch.setattr(graphdef, "CHILD", graphdef.CHILD._replace(module="gnnplace.frontends.no_such"))
    with pytest.raises(ValueError, match=r"net.pb: the package tensorflow can't read it: "):
        read_graphdef(tmp_path / "net.pb")
