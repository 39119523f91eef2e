"""Assignments that somebody has: what a target writes is read back as the same placement; bad ones are told in one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support import fake_accelerators
from support.exported_networks import step
from support.parts import random_parts
from support.small_networks import network, scattered

import gnnplace as gp
from gnnplace.exports.assignments import device_of, read_assignment
from gnnplace.exports.targets import Model, export
from gnnplace.placement import Placement
from gnnplace.units.modules import modules


def back(problem, placement, to, folder, model=None):
    """The placement that the written file of a target assigns."""
    path = folder / ("placed" if to in ("onnxruntime", "tensorflow") else "map.json")
    export(problem, placement, to, path, model, lambda line: None)
    read = {"onnxruntime": path / "manifest.json", "tensorflow": path / "devices.json"}.get(to, path)
    return read_assignment(str(read), problem, to, model)


@pytest.mark.parametrize("name", ["residual", "language", "patches", "gru", "compiled", "slashed"])
def test_a_device_map_is_read_back(name: str, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    problem = gp.problem(step(name, trains=False), cluster="k40-4", runtime="accelerate")
    for seed in range(4):
        placement = random_parts(problem, seed)
        assert np.array_equal(back(problem, placement, "accelerate", tmp_path).device, placement.device)


def test_a_split_spec_is_read_back(tmp_path: Path) -> None:
    problem = gp.problem(step("plain", trains=True), cluster="k40-4", runtime="torch-pipelining")
    number, device = modules(problem.graph).module, np.array([3, 1, 4], dtype=np.int32)
    placement = Placement(device[number])
    assert np.array_equal(back(problem, placement, "torch-pipelining", tmp_path).device, placement.device)
    ends = {"split_spec": {"0": "END", "4": "BEGINNING"}, "devices": ["cuda:2", "cuda:0", 3]}
    (tmp_path / "ends.json").write_text(json.dumps(ends))
    assert np.array_equal(read_assignment(str(tmp_path / "ends.json"), problem, "torch-pipelining").device, device[number])


def test_device_strings_are_read_back(tmp_path: Path) -> None:
    problem = gp.problem("nmt-2", cluster="k40-2")
    placement = scattered(problem, 1)
    assert np.array_equal(back(problem, placement, "tensorflow", tmp_path).device, placement.device)


@pytest.mark.slow
def test_nodes_of_an_onnx_file_are_read_back(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    module, x = network("convolutions")
    torch.onnx.export(module, (x,), tmp_path / "net.onnx", dynamo=False, verbose=False, input_names=["x"])
    model = Model(str(tmp_path / "net.onnx"))
    problem = gp.problem(model.path, cluster="k40-2")
    placement = scattered(problem, 1)
    again, kernels = back(problem, placement, "onnxruntime", tmp_path, model), problem.graph.kernel
    assert np.array_equal(again.device[kernels], placement.device[kernels])
    manifest = json.loads((tmp_path / "placed" / "manifest.json").read_text())
    provided = {
        node: row["provider"] + (f":{row['options']['device_id']}" if row["options"] else "")
        for row in manifest["segments"]
        for node in row["nodes"]
    }
    (tmp_path / "providers.json").write_text(json.dumps(provided))
    assert np.array_equal(read_assignment(str(tmp_path / "providers.json"), problem, "onnxruntime", model).device, again.device)


@pytest.mark.slow
def test_affinities_are_read_back(tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    module, x = network("convolutions")
    openvino.save_model(openvino.convert_model(module, example_input=x, input=list(x.shape)), tmp_path / "net.xml")
    model = Model(str(tmp_path / "net.xml"))
    problem = gp.problem(model.path, cluster="k40-2")
    placement = scattered(problem, 1)
    again, kernels = back(problem, placement, "openvino", tmp_path, model), problem.graph.kernel
    assert np.array_equal(again.device[kernels], placement.device[kernels])


def test_devices_are_called_as_programs_call_them() -> None:
    problem = gp.problem("squeezenet", cluster="k40-2")
    names = ["cpu", "cpu:0", 0, "0", "cuda:1", "gpu:1", "GPU.1", "GPU", "/device:GPU:0", "/job:localhost/replica:0/task:0/device:CPU:0"]
    assert [device_of(problem, name) for name in names] == [0, 0, 1, 1, 2, 2, 2, 1, 1, 0]
    for name in (2, "cuda:2", "cpu:1", "tpu:0", "cuda:x", ""):
        if name != "":
            with pytest.raises(ValueError, match=r"is no device of k40-2, which has cpu:0, gpu:0, gpu:1$"):
                device_of(problem, name)


BAD = {
    "another format": ([1, 2], "is no device_map, module -> device"),
    "an unknown module": ({"words": 0, "bloks": 1}, "'bloks' is no module; nearest is 'blocks'"),
    "a module without a device": ({"words": 0, "places": 0, "blocks": 1}, "gives no device to head"),
    "a device that is not there": ({"": 7}, "7 is no device of k40-2"),
    "an offload": ({"words": "cpu", "places": 0, "blocks": 0, "head": 0}, "words are offloaded"),
    "from disk": ({"words": "disk", "places": 0, "blocks": 0, "head": 0}, "words would be read from disk at each call"),
    "of another network": ({"conv1": 0, "layer1": 1, "fc": 1}, "'conv1' is no module"),
    "no number": ({"": 0.5}, "is no device_map"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_map_is_told_in_one_line(name: str, tmp_path: Path) -> None:
    document, words = BAD[name]
    problem, path = gp.problem(step("language", trains=False), cluster="k40-2", runtime="accelerate"), tmp_path / "map.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=words) as told:
        read_assignment(str(path), problem, "accelerate")
    assert str(told.value).startswith(f"{path}: ") and "\n" not in str(told.value)


def test_what_a_map_places_is_where_accelerate_puts_it(tmp_path: Path) -> None:
    """Nested names: the innermost decides, in the placement as in accelerate."""
    pytest.importorskip("accelerate")
    make, inputs = torch.nn.Sequential, (torch.zeros(4, 8),)
    net = lambda: make(torch.nn.Linear(8, 8), make(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)))  # noqa: E731
    problem, given = gp.problem(gp.TorchInference(net(), inputs), cluster="k40-2", runtime="accelerate"), {"0": 0, "1": 1, "1.1": 0}
    (tmp_path / "map.json").write_text(json.dumps(given))
    placement = read_assignment(str(tmp_path / "map.json"), problem, "accelerate")
    placed = dict(
        zip(
            modules(problem.graph).names,
            placement.device[np.unique(modules(problem.graph).module, return_index=True)[1]].tolist(),
            strict=True,
        )
    )
    assert placed == {"0": 1, "1.0": 2, "1.1": 1}
    assert fake_accelerators.dispatched(net, given, inputs) == [(4, 8)]
