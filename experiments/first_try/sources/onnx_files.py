"""The files of ONNX's own test suite: a file for each node test, and models, with the first of their sets of inputs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.backend.test import loader

from experiments.first_try.cases import Kind, NotRunnableError, OnnxCase

KINDS = ("inference",)
FOLDERS = ("simple", "pytorch-converted", "pytorch-operator")


def names() -> list[str]:
    """The tests as kind/name; light models are those of `real` without their weights."""
    return [*_tests()]


def case(name: str, kind: Kind) -> OnnxCase:
    """A test's model, written to a temporary file if it has none, with the inputs of its first set."""
    test = _tests()[name]
    if isinstance(test, Path):
        return OnnxCase(str(test), _inputs_of(onnx.load(test), _stored(test.parent / "test_data_set_0")))
    path = Path(tempfile.mkdtemp()) / "model.onnx"
    onnx.save(test.model, path)
    values = test.data_sets[0][0]
    return OnnxCase(os.fspath(path), _inputs_of(test.model, values))


@cache
def _tests() -> Mapping[str, Any]:
    tests: dict[str, Any] = {f"node/{test.name}": test for test in loader.load_node_model_tests()}
    data = Path(loader.DATA_DIR)
    for folder in FOLDERS:
        tests |= {f"{folder}/{path.parent.name}": path for path in data.glob(f"{folder}/*/model.onnx")}
    tests |= {f"light/{path.stem}": path for path in data.glob("light/*.onnx")}
    return dict(sorted(tests.items()))


def _stored(folder: Path) -> list[Any] | None:
    """The values of a folder in their order; None if there is none."""
    paths = sorted(folder.glob("input_*.pb"), key=lambda path: int(path.stem.rpartition("_")[2]))
    return [path.read_bytes() for path in paths] if folder.exists() else None


def _inputs_of(model: onnx.ModelProto, values: list[Any] | None) -> dict[str, Any]:
    """The values by the names of the model's inputs; random floats where a model has none."""
    weights = {weight.name for weight in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    if values is None:
        return {value.name: _random(value) for value in inputs}
    return {value.name: _value(value, given) for value, given in zip(inputs, values, strict=False)}


def _random(value: onnx.ValueInfoProto) -> np.ndarray:
    shape = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
    if value.type.tensor_type.elem_type != onnx.TensorProto.FLOAT or not all(shape):
        raise NotRunnableError(f"input {value.name}: has no example")
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def _value(declared: onnx.ValueInfoProto, given: Any) -> Any:
    """A value as ONNX Runtime takes it."""
    kind = declared.type.WhichOneof("value")
    if isinstance(given, bytes):
        types = {"tensor_type": onnx.TensorProto, "sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}
        given = types[kind].FromString(given)
    readers = {
        onnx.TensorProto: onnx.numpy_helper.to_array,
        onnx.SequenceProto: onnx.numpy_helper.to_list,
        onnx.OptionalProto: onnx.numpy_helper.to_optional,
    }
    value = readers[type(given)](given) if type(given) in readers else given
    value = np.asarray(value) if kind == "tensor_type" else value
    return (
        _typed(value, declared.type.tensor_type.elem_type)
        if kind == "tensor_type" and value.dtype.type.__module__ == "ml_dtypes"
        else value
    )


def _typed(value: np.ndarray, element: int) -> onnxruntime.OrtValue:
    """An array of a type that NumPy has not, such as bfloat16; ONNX Runtime takes none of parts of bytes."""
    if value.dtype.name in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn"):
        raise NotRunnableError(f"ONNX Runtime takes no array of {value.dtype.name} from Python")
    bits = value.view({1: np.uint8, 2: np.uint16}[value.dtype.itemsize])
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(bits), element)
