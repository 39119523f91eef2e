"""Real networks as ONNX files: those in the onnx package, without weights, and what PyTorch exports."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from support.onnx_files import model, node, onnx, saved, value, weight

from gnnplace import cli
from gnnplace.corpus import manifest
from gnnplace.frontends.onnx.read import read_onnx

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"

# Multiply-adds of convolutions and products, in millions. Published: VGG-19 19.6 G, ResNet-50 3.8 G with the strides in the first of
# three convolutions (He et al. 2016, section 4.1 and table 1), 4.1 G with them in the second (torchvision), as in this file.
MULTIPLY_ADDS = {
    "light_bvlc_alexnet": 655, "light_densenet121": 2834, "light_inception_v1": 1432, "light_inception_v2": 2019, "light_resnet50": 4089,
    "light_shufflenet": 125, "light_squeezenet": 349, "light_vgg19": 19632, "light_zfnet512": 1482,
}  # fmt: skip


@pytest.mark.parametrize("network", MULTIPLY_ADDS)
def test_the_networks_of_the_onnx_package(network):
    file = LIGHT / f"{network}.onnx"
    found = read_onnx(file)
    graph = found
    products = graph.canonical_kind.among(["conv", "matmul", "batch_matmul"])
    assert found.uncounted == {}
    assert round(int(graph.flops[products].sum()) / 2e6) == MULTIPLY_ADDS[network]
    whole = onnx.load(file, load_external_data=False).graph
    assert graph.num_ops >= len(whole.node) + len(whole.initializer) + 1
    assert graph.output_is_result.sum() == len(whole.output) == 1
    assert math.prod(graph.shape(int(graph.output_is_result.argmax())) or ()) == 1000


def test_resnet50_costs_what_is_published():
    graph = read_onnx(LIGHT / "light_resnet50.onnx")
    products = graph.canonical_kind.among(["conv", "matmul"])
    assert 4.0e9 < graph.flops[products].sum() / 2 < 4.2e9  # torchvision's page: 4.09 G multiply-adds


def test_what_pytorch_exports(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    monkeypatch.chdir(tmp_path)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    network = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)  # the exporter stores equal weights once
    example = torch.randn(2, 10, 32)
    exported = torch.onnx.export(network, (example,), dynamo=True, dynamic_shapes=({0: "batch"},), verbose=False)
    exported.save("net.onnx", external_data=True)
    for beside in tmp_path.glob("*.data"):
        beside.unlink()  # the weights are not looked at
    found = read_onnx("net.onnx", dims={"batch": 3})
    graph = found
    assert found.uncounted == {}
    assert abs(int(graph.persistent_bytes.sum()) - 4 * sum(p.numel() for p in network.parameters())) < 1000
    products = graph.canonical_kind.among(["matmul", "batch_matmul"])
    tokens, scores = 3 * 10, 3 * 10 * 10
    assert graph.flops[products].sum() == 2 * 2 * (tokens * (4 * 32 * 32 + 2 * 32 * 64) + 2 * scores * 32)
    assert {int(block) for block in graph.block[products]} == {0, 1}
    assert any((layer or "").startswith("layers.1.") for layer in graph.layer.values)
    assert graph.shape(int(graph.output_is_result.argmax())) == (3, 10, 32)


def test_a_file_with_many_nodes_is_read_whole(tmp_path):
    nodes = [node("Relu" if index % 2 else "Neg", f"v{index}", f"v{index + 1}", name=f"/block.{index}/op") for index in range(20_000)]
    graph = read_onnx(saved(tmp_path, model(nodes, [value("v0", ["n", 4])], ["v20000"])), dims={"n": 2})
    assert graph.num_ops == 20_001 and graph.flops.sum() == 20_000 * 8 and graph.block[-1] == 19_999


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, model([node("MatMul", "x w", "y")], [value("x", ["batch", 64])], ["y"], [weight("w", [64, 64])]))
    return tmp_path


def test_from_a_file_to_a_placement_in_one_command(folder, capsys):
    arguments = ["place", "net.onnx", "--dim", "batch=8", "--cluster", "k40-2", "--planner", "heft", "-q", "-o", "p.json"]
    assert cli.main(arguments) == 0
    assert json.loads((folder / "p.json").read_text())["device"].keys() == {"x", "w", "w/read", "y"}
    assert cli.main(["simulate", "net.onnx", "--dim", "batch=8", "--cluster", "k40-2", "--placement", "p.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["infeasible"] is None


def test_commands_complain_of_dimensions(folder, capsys):
    assert cli.main(["graphs", "show", "net.onnx"]) == 4
    assert "net.onnx: input 'x': dimension 0 ('batch') has no fixed size; set it with --dim" in capsys.readouterr().err
    assert cli.main(["graphs", "show", "rnnlm-2", "--dim", "batch=8"]) == 4
    assert "--dim batch=8: rnnlm-2 is no ONNX file (*.onnx)" in capsys.readouterr().err
    for wrong in ("batch", "=8", "batch=0", "batch=x"):
        with pytest.raises(SystemExit, match="2"):
            cli.main(["graphs", "show", "net.onnx", "--dim", wrong])
        assert f"{wrong!r} is not NAME=SIZE" in capsys.readouterr().err


def test_onnx_is_loaded_in_the_child_process_alone(folder):
    code = (
        "import sys; from gnnplace.sources import graphs as sources; "
        "graph = sources.graph('net.onnx', sources.Reading(dims=(('batch', 8),))); "
        "print(graph.num_ops, sorted({'onnx', 'google.protobuf', 'torch', 'tensorflow'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "4 []\n"


def test_importing_a_file_into_the_corpus(folder, capsys, monkeypatch):
    added = {}

    def add(graph, **fields):
        added.update(fields, graph=graph)
        return manifest.entries()[0]

    monkeypatch.setattr(manifest, "add", add)
    described = ["--family", "f", "--lineage", "l", "--source", "s", "--licence", "MIT", "--split", "test", "--mode", "inference"]
    assert cli.main(["graphs", "import", "net.onnx", "--dim", "batch=8", "--name", "mine", *described]) == 0
    assert added["graph"].name == "mine" and added["graph"].flops.sum() == 2 * 8 * 64 * 64 and added["mode"] == "inference"
