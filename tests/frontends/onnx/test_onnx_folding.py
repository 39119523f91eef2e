"""Shapes that an ONNX graph computes itself, by kinds of nodes that ONNX's own inference does not follow."""

import math

import pytest
from support.onnx_files import INT64, model, node, numbers, onnx, saved, value

from gnnplace.frontends.onnx import folding, resolving
from gnnplace.frontends.onnx.read import read_onnx

X = value("x", ["rows", 12])
THIRD = [
    node("Shape", "x", "shape"),
    node("Gather", "shape last", "width", axis=0),
    node("Add", "width two", "more"),
    node("Div", "more three", "third"),
    node("Slice", "x zero third one", "part"),
    node("Relu", "part", "y"),
]
CONSTANTS = [numbers("last", -1), numbers("two", 2), numbers("three", 3), numbers("zero", 0), numbers("one", 1)]


def graph_of(built, folder, **dims):
    return read_onnx(saved(folder, built), dims=dims)


@pytest.mark.parametrize("last", [-1, 1])
def test_the_end_of_a_slice_is_computed_from_a_shape(last, tmp_path):
    graph = graph_of(model(THIRD, [X], ["y"], [numbers("last", last), *CONSTANTS[1:]]), tmp_path, rows=5)
    assert graph.shape(int(graph.output_is_result.argmax())) == (5, 4)  # (12 + 2) / 3, rounded down


def test_what_is_behind_a_computed_shape_is_computed_in_turn(tmp_path):
    again = [node(each.op_type, *(" ".join(f"{name}2" if name in {"shape", "width", "more", "third", "part", "y"} else
             ("y" if name == "x" else name) for name in names) for names in (each.input, each.output)),
             **{attribute.name: attribute.i for attribute in each.attribute}) for each in THIRD]  # fmt: skip
    graph = graph_of(model([*THIRD, *again], [X], ["y2"], CONSTANTS), tmp_path, rows=5)
    assert graph.shape(int(graph.output_is_result.argmax())) == (5, 2)  # (4 + 2) / 3


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        ([node("Size", "x", "n"), node("Range", "zero n one", "y")], (24,)),
        ([node("Shape", "x", "s", start=1), node("ConstantOfShape", "s", "y")], (12,)),
        ([node("Shape", "x", "s", end=-1), node("Mul", "s s", "t"), node("Expand", "one t", "y")], (4,)),
        ([node("Shape", "x", "s"), node("Equal", "s two", "e"), node("Where", "e two three", "t"), node("Expand", "one t", "y")], (2, 3)),
    ],
)
def test_values_that_make_shapes(nodes, shape, tmp_path):
    scalars = [onnx.helper.make_tensor(name, INT64, [], [number]) for name, number in (("zero", 0), ("one", 1), ("two", 2), ("three", 3))]
    graph = graph_of(model(nodes, [X], ["y"], scalars), tmp_path, rows=2)
    assert graph.shape(int(graph.output_is_result.argmax())) == shape


def test_nothing_large_is_computed(monkeypatch):
    computed = []
    evaluator = folding.ReferenceEvaluator
    monkeypatch.setattr(folding, "ReferenceEvaluator", lambda made: computed.append(made.graph.node[0].name) or evaluator(made))
    large = numbers("large", *range(folding.MOST_ELEMENTS + 1))
    nodes = [node("Neg", "large", "a", name="long"), node("Neg", "small", "b", name="short"), node("NonZero", "x", "y")]
    built = model(nodes, [value("x", [3])], ["y"], [large, numbers("small", 1)])
    before = built.SerializeToString()
    types = resolving.resolved(built, ["y"])
    assert computed == ["short"] and built.SerializeToString() == before
    assert folding.is_full(types["a"]) and not folding.is_full(types["y"])


def test_a_value_that_cannot_be_computed_is_unknown(tmp_path):
    nodes = [node("Shape", "x", "s"), node("Gather", "s nine", "n"), node("Slice", "x zero n one", "y")]
    with pytest.raises(ValueError, match=r"node 'y' \(Slice\): its output 'y': has the shape \[\?, \?\], which depends on values"):
        graph_of(model(nodes, [X], ["y"], [numbers("nine", 9), *CONSTANTS]), tmp_path, rows=5)


def test_what_the_older_exporter_of_pytorch_writes_costs_what_torch_counts(tmp_path):
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = (part.view(batch, length, 4, 8).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
            mixed = (q @ k.transpose(-1, -2)).softmax(-1) @ v
            return x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    network, example = torch.nn.Sequential(Attention(), Attention()).eval(), torch.randn(2, 10, 32)
    axes = {"x": {0: "batch", 1: "length"}}
    torch.onnx.export(network, (example,), str(tmp_path / "net.onnx"), dynamo=False, input_names=["x"], dynamic_axes=axes)
    found = read_onnx(tmp_path / "net.onnx", dims={"batch": 3, "length": 7})
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(torch.randn(3, 7, 32))
    graph = found
    assert graph.flops[graph.canonical_kind.among(["matmul", "batch_matmul"])].sum() == counter.get_total_flops()
    assert graph.shape(int(graph.output_is_result.argmax())) == (3, 7, 32)
    assert graph.persistent_bytes.sum() == 4 * sum(math.prod(parameter.shape) for parameter in network.parameters())
    assert graph.canonical_kind.among(["softmax"]).sum() == 2
