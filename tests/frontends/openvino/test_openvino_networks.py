"""Networks as OpenVINO models: what its converter makes of PyTorch modules, large models, and models on the command line."""

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest
from support.openvino_files import const, layer, model, parameter, result, saved

from gnnplace import cli
from gnnplace.frontends.openvino.read import read_openvino

converts = pytest.mark.skipif(find_spec("openvino") is None, reason="the package openvino is not installed")
PRODUCTS = ("matmul", "batch_matmul", "conv", "attention")


def _net():
    return model(
        parameter("x", [8, 64]), const("w", [64, 64]), layer("MatMul", "y", "x w", [[8, 64]], transpose_b="true"), result("y")
    )  # fmt: skip


def _flops(graph):
    """By canonical kind, where there are any."""
    found = {kind: int(graph.flops[graph.canonical_kind.among([kind])].sum()) for kind in graph.canonical_kind.values}
    return {kind: flops for kind, flops in found.items() if flops}


@pytest.fixture
def both():
    """A module's graph through OpenVINO, and by PyTorch's own front-end."""
    torch = pytest.importorskip("torch")
    from datasets.build import openvino_models
    from gnnplace.frontends.torch.inference import inference

    def read(module, argument, *shape):
        workload = openvino_models.Workload(lambda: module, {argument: torch.ones(*shape)}, "f", "l", "s")
        found = openvino_models.converted(workload, "net")
        assert not found.uncounted
        return found, inference(module, (torch.ones(*shape),), name="net").graph

    return read


@converts
def test_a_convolutional_network_costs_what_pytorch_counts(both):
    from torch import nn

    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=4),
        nn.MaxPool2d(2), nn.ConvTranspose2d(8, 4, 2, stride=2, groups=2), nn.Sigmoid(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, 5),
    )  # fmt: skip
    graph, expected = both(net, "input", 2, 3, 16, 16)
    ours, theirs = _flops(graph), _flops(expected)
    biases = 2 * (8 * 64 + 8 * 64 + 4 * 64 + 5)  # additions of their own; batch norm's mean, variance, scale and offset are one bias
    assert ours.pop("elementwise") == biases and theirs.pop("normalization") == 8 * 2 * 8 * 64
    assert ours == theirs
    assert ours["conv"] == 2 * 2 * (8 * 64 * 27 + 8 * 64 * 18 + 8 * 16 * 8)
    assert graph.persistent_bytes.sum() == 4 * (3 * 8 * 9 + 8 + 8 * 2 * 9 + 8 + 8 * 2 * 4 + 4 + 4 * 5 + 5)
    assert graph.shape(int(graph.output_is_result.argmax())) == (2, 5)


@converts
def test_attention_costs_what_pytorch_counts(both):
    from torch import nn
    from torch.nn import functional

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.joint, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)

        def forward(self, image):
            heads = self.joint(self.norm(image)).view(2, 10, 3, 4, 8).permute(2, 0, 3, 1, 4)
            found = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2])
            return self.out(found.transpose(1, 2).reshape(2, 10, 32))

    graph, expected = both(nn.Sequential(Attention(), Attention()), "input", 2, 10, 32)
    ours, theirs = _flops(graph), _flops(expected)
    tokens, scores = 2 * 10, 2 * 4 * 10 * 10
    assert ours["matmul"] == 2 * 2 * tokens * 32 * (96 + 32)
    assert ours["attention"] == 2 * (2 * scores * (8 + 8) + 5 * scores)
    assert ours["matmul"] == theirs["matmul"] and ours["normalization"] == theirs["normalization"] == 2 * 8 * tokens * 32
    assert {int(block) for block in graph.block[graph.canonical_kind.among(PRODUCTS)]} == {0, 1}


@converts
def test_an_lstm_costs_its_gates_at_every_step(both):
    from torch import nn

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(12, 7, batch_first=True)

        def forward(self, image):
            return self.lstm(image)[0]

    graph, _ = both(Last(), "image", 2, 9, 12)
    assert _flops(graph)["matmul"] == 2 * 9 * (2 * 4 * 7 * (12 + 7) + 17 * 7)
    assert "LSTMSequence" in graph.kind.values and graph.persistent_bytes.sum() >= 4 * 4 * 7 * (12 + 7 + 1)


@converts
def test_a_batch_without_a_size_is_refused_with_advice(tmp_path):
    code = (
        "import sys; sys.modules['openvino_telemetry'] = None; import openvino, torch; "
        "made = openvino.convert_model(torch.nn.Linear(3, 4), example_input=torch.ones(2, 3), input=[[-1, 3]]); "
        f"openvino.save_model(made, {str(tmp_path / 'net.xml')!r})"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    with pytest.raises(
        ValueError, match=r"\(Parameter\): dimension 0 has no fixed size; give it one before the model is saved: model.reshape"
    ):
        read_openvino(tmp_path / "net.xml")


def test_a_model_with_many_layers_is_read_whole(tmp_path):
    layers = [parameter("v0", [2, 4])]
    for index in range(20_000):
        kind = "ReLU" if index % 2 else "Tanh"
        layers.append(layer(kind, f"v{index + 1}", f"v{index}", [[2, 4]]))
    graph = read_openvino(saved(tmp_path, model(*layers, result("v20000"))))
    assert graph.num_ops == 20_001 and graph.flops.sum() == 20_000 * 8


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, _net())
    return tmp_path


def test_from_a_file_to_a_placement_in_one_command(folder, capsys):
    assert cli.main(["place", "net.xml", "--cluster", "k40-2", "--planner", "heft", "-q", "-o", "p.json"]) == 0
    assert json.loads((folder / "p.json").read_text())["device"].keys() == {"x", "w", "w/read", "y"}
    assert cli.main(["simulate", "net.xml", "--cluster", "k40-2", "--placement", "p.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["infeasible"] is None


def test_commands_complain_in_a_line(folder, capsys):
    assert cli.main(["graphs", "show", "net.xml", "--dim", "batch=8"]) == 4
    assert "--dim batch=8: net.xml is no ONNX file" in capsys.readouterr().err
    saved(folder, _net()[:-30])
    assert cli.main(["graphs", "show", "net.xml"]) == 4
    assert "net.xml: line 14: is no XML, or cut short" in capsys.readouterr().err


def test_reading_needs_no_openvino(folder):
    code = (
        "import sys; from gnnplace.sources import graphs as sources; graph = sources.graph('net.xml'); "
        "print(graph.num_ops, sorted({'openvino', 'torch', 'tensorflow', 'onnx'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "4 []\n"
