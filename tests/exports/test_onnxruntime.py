"""ONNX Runtime chains the segments of small networks, and computes what the whole network computes."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.small_networks import NETWORKS, network, scattered

import gnnplace as gp
from gnnplace import cli
from gnnplace.exports.onnx_segments import node_ops, segments
from gnnplace.frontends.network.network import Network, Node, Tensor
from gnnplace.frontends.onnx.read import read_model
from gnnplace.placement import Placement


def saved(folder: Path, name: str) -> tuple[Path, np.ndarray]:
    pytest.importorskip("onnx")
    module, x = network(name)
    torch.onnx.export(module, (x,), folder / "net.onnx", dynamo=False, verbose=False, input_names=["x"])
    return folder / "net.onnx", x.numpy()


def chain(folder: Path):
    """The module beside the segments, as a user imports it."""
    spec = importlib.util.spec_from_file_location("chain", folder / "chain.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_chained_segments_compute_what_the_model_computes(name: str, seed: int, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    file, x = saved(tmp_path, name)
    problem = gp.problem(file, cluster="k40-2")
    placement = scattered(problem, seed)
    gp.export(problem, placement, "onnxruntime", tmp_path / "placed", model=file)
    made = chain(tmp_path / "placed").Chain(provider="CPUExecutionProvider")
    (expected,) = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    (found,) = made.run({"x": x}).values()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    rows = made.manifest["segments"]
    assert len(rows) > 3 and {row["device"] for row in rows} == set(problem.cluster.device_names)
    provided = {row["device"]: (row["provider"], row["options"]) for row in rows}
    gpu = "CUDAExecutionProvider"
    assert provided == {"cpu:0": ("CPUExecutionProvider", {}), "gpu:0": (gpu, {"device_id": 0}), "gpu:1": (gpu, {"device_id": 1})}


@pytest.mark.slow
def test_a_loop_and_a_branch_are_chained_as_they_were_placed(tmp_path: Path) -> None:
    from support.onnx_files import arrays, constant, helper, model, node, onnx, outputs_of, value
    from support.onnx_files import saved as written

    branch = helper.make_graph([node("Tanh", "out", "t")], "then", [], [value("t", [3])])
    nodes = [node("MatMul", "row w", "part"), node("Add", "sum part", "next"), node("Identity", "next", "out"),
             node("If", "on", "y_t", then_branch=branch, else_branch=branch)]  # fmt: skip
    weight = onnx.numpy_helper.from_array(arrays(w=[4, 3])["w"], "w")
    body = helper.make_graph(nodes, "body", [value("sum", [3]), value("row", [4])], [value("next", [3]), value("y_t", [3])], [weight])
    scan = node("Scan", "start x", "last y", name="scan", body=body, num_scan_inputs=1)
    inputs = {"start": [3], "x": ["steps", 4]}
    built = model([scan], [value(*item) for item in inputs.items()], ["last", "y"], [constant("on", True, onnx.TensorProto.BOOL)])
    for output, shape in zip(built.graph.output, ([3], ["steps", 3]), strict=True):
        output.CopyFrom(value(output.name, shape))
    file = written(tmp_path, built)
    problem = gp.problem(file, cluster="k40-2", dims={"steps": 5})
    gp.export(problem, scattered(problem, 1), "onnxruntime", tmp_path / "placed", model=file, dims={"steps": 5})
    feed = arrays(start=[3], x=[5, 4])
    results = chain(tmp_path / "placed").Chain(provider="CPUExecutionProvider").run(feed)
    for result, expected in zip(results.values(), outputs_of(file, **feed), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.slow
def test_open_dimensions_have_their_sizes_and_weights_beside_the_file_are_read(tmp_path: Path) -> None:
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    module, x = network("attends")
    names = {"input_names": ["x"], "dynamic_axes": {"x": {0: "batch"}}}
    torch.onnx.export(module, (x,), tmp_path / "open.onnx", dynamo=False, verbose=False, **names)
    file = tmp_path / "net.onnx"
    onnx.save(onnx.load(tmp_path / "open.onnx"), file, save_as_external_data=True, location="weights.bin", size_threshold=0)
    problem = gp.problem(file, cluster="k40-2", dims={"batch": 2})
    gp.export(problem, scattered(problem, seed=0), "onnxruntime", tmp_path / "placed", model=file, dims={"batch": 2})
    (expected,) = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, {"x": x.numpy()})
    (tmp_path / "weights.bin").unlink()  # the segments hold their own
    (found,) = chain(tmp_path / "placed").Chain(provider="CPUExecutionProvider").run({"x": x.numpy()}).values()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"net\.onnx: its weights can't be read: "):
        gp.export(problem, scattered(problem, seed=0), "onnxruntime", tmp_path / "no", model=file, dims={"batch": 2})


@pytest.mark.slow
def test_a_provider_that_is_not_there_is_said(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has GPUs")
    file, _ = saved(tmp_path, "towers")
    problem = gp.problem(file, cluster="k40-2")
    gp.export(problem, gp.place(problem, "gpu"), "onnxruntime", tmp_path / "placed", model=file)
    with pytest.raises(RuntimeError, match=r"^0\.onnx: this onnxruntime has no CUDAExecutionProvider; its providers are "):
        chain(tmp_path / "placed").Chain()


def chained(*kinds: str, inputs: str = "x") -> Network:
    """Nodes that each read what their text says: "a: x" makes the value a of x."""
    nodes = []
    for text in kinds:
        made, _, read = text.partition(":")
        nodes.append(Node(made, "Op", None, tuple(read.split()), (made,), {}))
    names = [*inputs.split(), *(node.name for node in nodes), "w"]
    return Network(tuple(inputs.split()), ("w",), tuple(nodes), (nodes[-1].name,), {name: Tensor((1,), "float32") for name in names})


def test_segments_by_hand() -> None:
    found = segments(chained("c:", "a: x w", "b: a", "d: b c a"), [1, 0, 1, 1])
    assert [(each.device, each.nodes, each.inputs, each.outputs) for each in found] == [
        (0, (1,), ("x",), ("a",)),
        (1, (0, 2, 3), ("a",), ("d",)),  # the constant c is made where it is read, not in a segment before a
    ]


def test_results_that_no_node_makes_by_hand() -> None:
    network = replace(chained("a: x w", "b: a"), outputs=("w", "x", "b"))  # a weight and an input besides
    assert [(each.inputs, each.outputs) for each in segments(network, [0, 1])] == [(("x",), ("a", "w")), (("a",), ("b",))]


def test_a_segment_reads_only_what_was_made_before_it_and_every_node_is_in_one() -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        size = int(generator.integers(1, 12))
        texts = [f"n{i}: " + " ".join(sorted({f"n{j}" for j in generator.integers(-1, i, size=2) if j >= 0} or {"x"})) for i in range(size)]
        graph, device = chained(*texts), generator.integers(3, size=size).tolist()
        found = segments(graph, device)
        assert sorted(node for each in found for node in each.nodes) == list(range(size))
        assert all(device[node] == each.device for each in found for node in each.nodes)
        known = {"x"}
        for each in found:
            assert known.issuperset(each.inputs)
            assert {value for node in each.nodes for value in graph.nodes[node].inputs} <= known | {graph.nodes[n].name for n in each.nodes}
            known.update(each.outputs)
        assert known.issuperset(graph.outputs)


@pytest.mark.slow
def test_every_node_has_its_op(tmp_path: Path) -> None:
    for name in NETWORKS:
        file, _ = saved(tmp_path, name)
        graph, read = gp.problem(file, cluster="k40-2").graph, read_model(file, {})
        ops = node_ops(graph, read)
        for node, op in zip(read.nodes, ops, strict=True):
            assert graph.op_names[op].startswith(node.name) and graph.kind[op] in (node.kind, "initializer")


@pytest.mark.slow
def test_what_onnxruntime_cannot_run_is_refused(tmp_path: Path, capsys) -> None:
    file, _ = saved(tmp_path, "towers")
    with pytest.raises(ValueError, match=r"^onnxruntime: takes an ONNX file \(\.onnx\), not no model; place the \.onnx that"):
        problem = gp.problem(file, cluster="k40-2")
        gp.export(problem, gp.place(problem, "gpu"), "onnxruntime", tmp_path / "no")
    tpus = gp.problem(file, cluster="2x tpu-v4, pcie4")
    with pytest.raises(ValueError, match=r"^onnxruntime: has no provider for tpu:0.*; place with --devices of CPUs and GPUs$"):
        gp.export(tpus, Placement(np.full(tpus.num_ops, 1, dtype=np.int32)), "onnxruntime", tmp_path / "no", model=file)
    placed = str(tmp_path / "squeezenet.json")
    assert cli.main(["place", "squeezenet", "--cluster", "k40-2", "--planner", "gpu", "-o", placed, "-q"]) == 0
    with pytest.raises(SystemExit) as left:
        cli.main(["export", "squeezenet", "--cluster", "k40-2", "--placement", placed, "--to", "onnxruntime", "-o", f"{tmp_path}/no"])
    assert left.value.code == 2 and "--to onnxruntime: takes an ONNX file (.onnx), not squeezenet" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_nodes_of_training_are_refused(tmp_path: Path) -> None:
    from support import onnx_files

    adam = onnx_files.node("Adam", "r t x g v h", "x_new v_new h_new")
    adam.domain = "ai.onnx.preview.training"
    sizes = {"r": [], "t": [], "x": [4], "g": [4], "v": [4], "h": [4]}
    inputs = [onnx_files.value(name, shape, onnx_files.INT64 if name == "t" else onnx_files.FLOAT) for name, shape in sizes.items()]
    built = onnx_files.model([adam], inputs, [onnx_files.value("x_new", [4])])
    built.opset_import.append(onnx_files.helper.make_opsetid("ai.onnx.preview.training", 1))
    file = onnx_files.saved(tmp_path, built)
    problem = gp.problem(file, cluster="k40-2")
    with pytest.raises(ValueError, match=r"^onnxruntime: runs no nodes of training, and .*Adam\) are; place the model for inference$"):
        gp.export(problem, gp.place(problem, "gpu"), "onnxruntime", tmp_path / "no", model=file)
