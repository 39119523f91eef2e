"""ONNX files for tests, built node by node."""

from __future__ import annotations

from pathlib import Path

import numpy as np
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


def model(nodes, inputs=(), outputs=(), initializers=(), functions=(), opset=21, domains=(), **more):
    """A model; inputs are value declarations, outputs are names whose types are to be inferred, or declarations."""
    declared = [onnx.ValueInfoProto(name=output) if isinstance(output, str) else output for output in outputs]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), declared, list(initializers), **more)
    opsets = [helper.make_opsetid(domain, version) for domain, version in (("", opset), ("mine", 1), *domains)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=10)


def saved(folder: Path, built, name="net.onnx") -> Path:
    """The file of a model, unchecked, as it is."""
    path = folder / name
    path.write_bytes(built.SerializeToString())
    return path


def flat(path, dims=None):
    """The model in a file without subgraphs, sequences and optionals; its outputs are declared."""
    from gnnplace.frontends.onnx.checks import DTYPES
    from gnnplace.frontends.onnx.shapes import flatten, typed

    types = typed(onnx.load(path), dims or {})
    built = flatten(onnx.load(path), onnx.load(path), dims or {})
    numbers_of = {name: number for number, name in DTYPES.items()}
    outputs = [value(name, types.tensors[name].shape, numbers_of[types.tensors[name].dtype]) for name in types.outputs]
    built.graph.ClearField("output")
    built.graph.output.extend(outputs)
    return built


def outputs_of(built, **inputs):
    """What onnxruntime computes of a model: arrays, those of sequences in their order."""
    onnxruntime = pytest.importorskip("onnxruntime")
    content = built.read_bytes() if isinstance(built, Path) else built.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = {declared.name for declared in session.get_inputs()}
    results = session.run(None, {name: array for name, array in inputs.items() if name in names})
    return [array for result in results for array in (result if isinstance(result, list) else [result])]


def constant(name, content, dtype=INT64):
    """An initializer of numbers in any nesting."""
    array = np.asarray(content, helper.tensor_dtype_to_np_dtype(dtype))
    return onnx.numpy_helper.from_array(array, name)


def arrays(**shapes):
    """Random inputs of these shapes."""
    generator = np.random.default_rng(0)
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def check_same(tmp_path, built, **inputs):
    """Checks that the outputs of the flat model are those of the file, bit for bit; returns the file's graph."""
    from gnnplace.frontends.onnx.read import read_onnx

    path = saved(tmp_path, built)
    for expected, result in zip(outputs_of(path, **inputs), outputs_of(flat(path), **inputs), strict=True):
        np.testing.assert_array_equal(result, expected)
    return read_onnx(path)


def kinds(read):
    """The kinds of a graph's ops."""
    return [read.kind[op] for op in range(read.num_ops)]
