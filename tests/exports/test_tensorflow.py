"""TensorFlow runs placed GraphDefs and a placed tf.function: every op on its device, with the outputs of the graph as it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf
from support import tensorflow_functions, tensorflow_models
from support.pages import ROOT
from support.small_networks import scattered

import gnnplace as gp

v1 = tf.compat.v1
Feeds = dict[str, np.ndarray]


def frozen() -> tuple[list[str], Feeds]:
    """A network whose weights are constants."""
    draw = np.random.default_rng(0)
    x = v1.placeholder(tf.float32, (4, 16), "x")
    kernels = [tf.constant(draw.normal(size=shape).astype(np.float32)) for shape in ((16, 32), (32, 8))]
    tf.nn.softmax(tf.matmul(tf.nn.relu(tf.matmul(x, kernels[0])), kernels[1]), name="y")
    return ["y:0"], {"x:0": draw.normal(size=(4, 16)).astype(np.float32)}


def called() -> tuple[list[str], Feeds]:
    """Calls of a function, which the placed graph has inlined."""

    @tf.function
    def twice(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(tf.matmul(x, x) + 1.0)

    x = v1.placeholder(tf.float32, (4, 4), "x")
    tf.identity(twice(twice(x)) * x, name="y")
    return ["y:0"], {"x:0": np.eye(4, dtype=np.float32)}


def trained() -> tuple[list[str], Feeds]:
    """A training step with variables, whose initialisers the step has not."""
    v1.set_random_seed(0)
    loss, _ = tensorflow_models.branches()
    v1.global_variables_initializer()
    return [loss.name], {"x:0": np.random.default_rng(0).normal(size=(16, 12)).astype(np.float32)}


GRAPHS = {"frozen": frozen, "called": called, "trained": trained}


def run(graph_def: Any, fetches: list[str], feeds: Feeds) -> tuple[list[np.ndarray], dict[str, str]]:
    """What two steps find on two logical CPUs, and the device on which each op ran."""
    config = v1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=True)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    ran, found = v1.RunMetadata(), []
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        names = {op.name for op in graph.get_operations()}
        with v1.Session(graph=graph, config=config) as session:
            if "init" in names:
                session.run("init")
            wanted = [*fetches, *(["Momentum"] if "Momentum" in names else [])]
            for _ in range(2):
                found += session.run(wanted, feeds, v1.RunOptions(output_partition_graphs=True), ran)[: len(fetches)]
    return found, {node.name: node.device.partition("task:0")[2] for part in ran.partition_graphs for node in part.node}


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_a_placed_graphdef_runs_where_it_is_placed_and_computes_the_same(name: str, tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        fetches, feeds = GRAPHS[name]()
    file = tmp_path / "graph.pb"
    file.write_bytes(graph.as_graph_def().SerializeToString())
    steps = [*fetches, *(["Momentum"] if name == "trained" else [])]
    problem = gp.problem(file, cluster="cpu-2", fetches=steps)
    gp.export(problem, scattered(problem, seed=3), "tensorflow", tmp_path / "placed", model=file, fetches=steps)
    placed = v1.GraphDef.FromString((tmp_path / "placed" / "graph.pb").read_bytes())
    expected, _ = run(graph.as_graph_def(), fetches, feeds)
    found, where = run(placed, fetches, feeds)
    np.testing.assert_array_equal(found, expected)
    devices = json.loads((tmp_path / "placed" / "devices.json").read_text())
    both = devices.keys() & where.keys()
    assert len(both) > 5 and {op: where[op] for op in both} == {op: devices[op] for op in both}
    assert set(where.values()) == {"/device:CPU:0", "/device:CPU:1"}


@pytest.mark.slow
def test_gpus_are_named_and_soft_placement_runs_them_here(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        fetches, feeds = frozen()
    file = tmp_path / "graph.pb"
    file.write_bytes(graph.as_graph_def().SerializeToString())
    problem = gp.problem(file, cluster="k40-2")
    gp.export(problem, scattered(problem, seed=0), "tensorflow", tmp_path / "placed", model=file)
    placed = v1.GraphDef.FromString((tmp_path / "placed" / "graph.pb").read_bytes())
    assert {node.device for node in placed.node} == {"/device:CPU:0", "/device:GPU:0", "/device:GPU:1"}
    np.testing.assert_array_equal(run(placed, fetches, feeds)[0], run(graph.as_graph_def(), fetches, feeds)[0])


@pytest.mark.slow
def test_a_tf_function_is_traced_with_the_devices_and_trains_the_same(tmp_path: Path) -> None:
    problem = gp.problem(tensorflow_functions.placed(), cluster="cpu-2")
    gp.export(problem, scattered(problem, seed=1), "tensorflow", tmp_path / "placed")
    assert sorted(path.name for path in (tmp_path / "placed").iterdir()) == ["device_function.py", "devices.json"]
    program = [sys.executable, "-m", "support.placed_function", str(tmp_path / "placed")]
    ended = subprocess.run(program, cwd=ROOT / "tests", capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    said = json.loads(ended.stdout)
    assert said["found"] == said["expected"] and said["found"][1] < said["found"][0]
    devices = json.loads((tmp_path / "placed" / "devices.json").read_text())
    assert len(said["devices"]) > 20 and set(devices.values()) == {"/device:CPU:0", "/device:CPU:1"}
    chosen = {"x", "Identity", "NoOp", "first/MatMul/ReadVariableOp", "second/MatMul/ReadVariableOp"}  # TensorFlow makes them, not the body
    assert {op for op, device in said["devices"].items() if not device} == chosen
    assert all(device == devices[op] for op, device in said["devices"].items() if op not in chosen)
    assert [device[-len("/device:CPU:0") :] for device in said["ops"]] == [devices[name] for name in tensorflow_functions.NAMES]


@pytest.mark.slow
def test_graphs_of_other_frameworks_and_other_graphdefs_are_refused(tmp_path: Path) -> None:
    squeezenet = gp.problem("squeezenet", cluster="k40-2")
    with pytest.raises(
        ValueError, match=r"^tensorflow: .* are no ops of TensorFlow; place a graph that was read from TensorFlow or Keras$"
    ):
        gp.export(squeezenet, gp.place(squeezenet, "gpu"), "tensorflow", tmp_path / "no")
    with tf.Graph().as_default() as graph:
        frozen()
    (tmp_path / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    other = gp.problem("nmt-2", cluster="k40-2")
    with pytest.raises(ValueError, match=r"graph\.pb: its graph has the checksum .*, that of the placed one is "):
        gp.export(other, gp.place(other, "gpu"), "tensorflow", tmp_path / "no", model=tmp_path / "graph.pb")
    assert not (tmp_path / "no").exists()
