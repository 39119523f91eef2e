"""OpenVINO takes the affinities: HETERO splits small networks by them, and computes what the whole network computes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from support.small_networks import NETWORKS, network, scattered

import gnnplace as gp
from gnnplace import cli

ON_THIS_MACHINE = {"CPU": "CPU", "GPU.0": "AUTO", "GPU.1": "AUTO"}  # AUTO is another device to HETERO, and runs on the CPU


@pytest.fixture
def openvino():
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # else importing openvino reports to its makers
    return pytest.importorskip("openvino")


def saved(openvino, name: str, folder: Path) -> tuple[Path, np.ndarray]:
    module, x = network(name)
    openvino.save_model(openvino.convert_model(module, example_input=x, input=list(x.shape)), folder / "net.xml", compress_to_fp16=False)
    return folder / "net.xml", x.numpy()


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_hetero_splits_by_the_affinities_and_computes_the_same(name: str, openvino, tmp_path: Path) -> None:
    file, x = saved(openvino, name, tmp_path)
    problem = gp.problem(file, cluster="k40-2")
    gp.export(problem, scattered(problem, seed=1), "openvino", tmp_path / "affinity.json", model=file)
    placed = json.loads((tmp_path / "affinity.json").read_text())
    assert placed["device"] == "HETERO:GPU.0,GPU.1,CPU" and set(placed["affinity"].values()) == set(ON_THIS_MACHINE)
    core = openvino.Core()
    core.set_property("CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    model = core.read_model(file)
    assert placed["affinity"].keys() == core.query_model(model, "HETERO:CPU").keys()
    expected = core.compile_model(model, "CPU")(x)[0]
    for node in model.get_ops():
        node.get_rt_info()["affinity"] = ON_THIS_MACHINE[placed["affinity"][node.get_friendly_name()]]
    split = core.compile_model(model, "HETERO:AUTO,CPU")
    assert set(split.get_property("EXECUTION_DEVICES")) == {"CPU", "AUTO"}
    np.testing.assert_allclose(split(x)[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_every_node_has_its_ops_device(openvino, tmp_path: Path) -> None:
    file, _ = saved(openvino, "towers", tmp_path)
    problem = gp.problem(file, cluster="k40-2")
    placement = scattered(problem, seed=2)
    gp.export(problem, placement, "openvino", tmp_path / "affinity.json", model=file)
    found = json.loads((tmp_path / "affinity.json").read_text())["affinity"]
    named = {"cpu:0": "CPU", "gpu:0": "GPU.0", "gpu:1": "GPU.1"}
    expected = {name: named[problem.cluster.device_names[d]] for name, d in zip(problem.graph.op_names, placement.device, strict=True)}
    constants = {name for op, name in enumerate(problem.graph.op_names) if problem.graph.kind[op] == "Constant"}
    layers = [name for name in expected if name in found and name not in constants]
    assert len(layers) > 15 and all(found[name] == expected[name] for name in layers)
    assert [name for name in expected if name not in found] == [name for name in expected if name.endswith("/read")]
    graph, read = problem.graph, set()
    for source, reader in zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), strict=True):
        if (name := graph.op_names[source]) in constants:
            read.add((name, found[name] == expected[graph.op_names[reader]]))
    assert constants and all((name, True) in read for name in constants)


@pytest.mark.slow
def test_another_model_several_cpus_and_other_frameworks_are_refused(openvino, tmp_path: Path, capsys) -> None:
    file, _ = saved(openvino, "towers", tmp_path)
    problem = gp.problem(file, cluster="k40-2")
    with pytest.raises(ValueError, match=r"^openvino: takes an OpenVINO model \(\.xml\), not no model; place the \.xml"):
        gp.export(problem, gp.place(problem, "gpu"), "openvino", tmp_path / "no.json")
    (tmp_path / "other").mkdir()
    other, _ = saved(openvino, "attends", tmp_path / "other")
    with pytest.raises(ValueError, match=r"other/net\.xml: its graph has the checksum .*, that of the placed one is "):
        gp.export(problem, gp.place(problem, "gpu"), "openvino", tmp_path / "no.json", model=other)
    cores = gp.problem(file, cluster="cpu-2")
    with pytest.raises(ValueError, match=r"^openvino: has one CPU, and ops stand on cpu:0, cpu:1; place on a cluster with one CPU"):
        gp.export(cores, scattered(cores, seed=0), "openvino", tmp_path / "no.json", model=file)
    squeezenet = str(tmp_path / "squeezenet.json")
    assert cli.main(["place", "squeezenet", "--cluster", "k40-2", "--planner", "gpu", "-o", squeezenet, "-q"]) == 0
    with pytest.raises(SystemExit) as left:
        cli.main(["export", "squeezenet", "--cluster", "k40-2", "--placement", squeezenet, "--to", "openvino", "-o", f"{tmp_path}/no.json"])
    assert left.value.code == 2 and "--to openvino: takes an OpenVINO model (.xml), not squeezenet; place the" in capsys.readouterr().err
    assert not (tmp_path / "no.json").exists()
