"""ONNX files for tests, built node by node."""

from __future__ import annotations

from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")
helper, FLOAT, INT64 = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def node(kind, inputs, outputs, **attributes):
    """A node; inputs and outputs are names, separated by blanks (`-` for an absent one)."""
    names = [["" if name == "-" else name for name in names.split()] for names in (inputs, outputs)]
    return helper.make_node(kind, *names, **attributes)


def value(name, shape, dtype=FLOAT):
    """The declaration of a value; a shape of None declares no shape."""
    return helper.make_tensor_value_info(name, dtype, shape)


def weight(name, shape, dtype=FLOAT):
    """An initializer of zeros."""
    count = 1
    for size in shape:
        count *= size
    return helper.make_tensor(name, dtype, shape, [0] * count)


def numbers(name, *values):
    """An initializer of whole numbers, in one dimension."""
    return helper.make_tensor(name, INT64, [len(values)], values)


def model(nodes, inputs=(), outputs=(), initializers=(), functions=(), opset=21, **more):
    """A model; inputs are value declarations, outputs are names whose types are to be inferred, or declarations."""
    declared = [onnx.ValueInfoProto(name=output) if isinstance(output, str) else output for output in outputs]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), declared, list(initializers), **more)
    opsets = [helper.make_opsetid(domain, version) for domain, version in (("", opset), ("mine", 1))]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=10)


def saved(folder: Path, built, name="net.onnx") -> Path:
    """The file of a model, unchecked, as it is."""
    path = folder / name
    path.write_bytes(built.SerializeToString())
    return path
