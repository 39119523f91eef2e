"""The device_map: what accelerate runs as placed is written as the outermost whole modules, all else is one line of what would do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support import fake_accelerators, torch_steps
from support.exported_networks import NETWORKS, Block, step
from torch import nn

import gnnplace as gp
from gnnplace import cli
from gnnplace.exports import accelerate_trial
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.runtimes.refusal import TrialResult
from gnnplace.units.modules import modules

NET = """
import torch, gnnplace as gp
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(self.up(x))


def step():
    return gp.TorchStep(nn.Sequential(Block(), Block()), lambda net, x: net(x).square().mean(), (torch.zeros(4, 8),))
"""


def on(problem: Problem, second: list[str], devices: tuple[int, int] = (1, 2)) -> gp.Plan:
    """Modules whose names begin so on the second device, all others on the first."""
    found = modules(problem.graph)
    chosen = np.array([name.startswith(tuple(second)) for name in found.names])
    return gp.Plan.of(problem, Placement(np.where(chosen, devices[1], devices[0]).astype(np.int32)[found.module]))


def posed(name: str, trains: bool = False) -> Problem:
    return gp.problem(step(name, trains), cluster="k40-2")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["convolutions", "language", "attention"])
def test_a_dispatched_model_computes_what_the_model_computes(name: str, tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    torch.manual_seed(0)
    whole = torch_steps.convolutions() if name == "convolutions" else step(name, trains=True)
    problem = gp.problem(whole, cluster="k40-2")
    made = on(
        problem, ["head", "blocks.1", "blocks.2"] if name == "language" else ["head"] if name == "convolutions" else ["1.mlp", "2"]
    ).device_map()
    accelerate.utils.check_device_map(whole.module, made)  # every parameter has a device
    here = {module: "cpu" if where == 0 else "disk" for module, where in made.items()}
    with torch.no_grad():
        expected = whole.loss(whole.module.eval(), *whole.inputs)
        dispatched = accelerate.dispatch_model(whole.module, here, main_device="cpu", offload_dir=tmp_path, force_hooks=True)
        assert torch.equal(whole.loss(dispatched, *whole.inputs), expected)


@pytest.mark.slow
def test_a_block_on_one_device_is_named_whole_so_that_its_sum_meets() -> None:
    pytest.importorskip("accelerate")
    assert on(posed("residual"), ["2.", "3."]).device_map() == {"0": 0, "1": 0, "2": 1, "3": 1}
    told = r"^accelerate: the code of 2 gets tensors of two devices \(.*cuda:0.*\); place with --granularity module --keep-whole '\*'$"
    with pytest.raises(ValueError, match=told):
        on(posed("residual"), ["2.down", "3."]).device_map()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tied", "skips", "language", "encoder"])
def test_what_a_refusal_advises_is_written(name: str) -> None:
    pytest.importorskip("accelerate")
    problem, asked = posed(name, trains=True), []
    names = modules(problem.graph).names
    plan = on(problem, list(names[len(names) // 2 :]))
    for _ in range(5):
        try:
            made = plan.device_map()
            break
        except ValueError as refused:
            advice = str(refused).partition("place with --granularity module --keep-whole ")[2]
            assert advice, refused
            asked += [name.strip("'") for name in advice.split()]
        plan = gp.place(problem, "random", granularity="module", keep_whole=asked, accelerators_only=True, seed=len(asked))
    assert fake_accelerators.dispatched(NETWORKS[name][0], made, NETWORKS[name][1]())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["patches", "scaled", "twice", "compiled", "slashed", "norms"])
@pytest.mark.parametrize("second", [None, "middle"])
def test_bare_tensors_second_names_empty_and_compiled_modules_have_a_device(name: str, second: str | None) -> None:
    accelerate = pytest.importorskip("accelerate")
    problem = posed(name)
    cut = {"patches": "blocks.1", "scaled": "1", "twice": "middle", "compiled": "1.", "slashed": "up", "norms": "3"}[name]
    made = on(problem, ["head", cut] if second else []).device_map()
    with torch.device("meta"):
        accelerate.utils.check_device_map(NETWORKS[name][0](), made)
    assert set(made.values()) == ({0, 1} if second else {0}) and ("" in made) == (second is None)


def test_a_cpu_beside_an_accelerator_is_refused_and_a_cpu_alone_is_not() -> None:
    problem = gp.problem("squeezenet", cluster="k40-2")
    told = (
        r"^accelerate: computes on one CPU or on accelerators, and .* are on cpu:0: .*; place with --accelerators-only, or with --devices"
    )
    with pytest.raises(ValueError, match=told):
        on(problem, ["layers.5"], (1, 0)).device_map()
    with pytest.warns(UserWarning, match="not tried"):
        assert on(problem, [], (0, 0)).device_map() == {"": "cpu"}
        assert set(on(problem, ["layers.6", "layers.7", "layers.8", "head"]).device_map().values()) == {0, 1}


@pytest.mark.parametrize("later", [["backward_weight"], ["backward_data", "backward_weight"], ["update"]])
@pytest.mark.parametrize("to", ["accelerate", "torch-pipelining"])
def test_a_backward_pass_or_an_update_elsewhere_is_refused(later: list[str], to: str, tmp_path: Path) -> None:
    net = nn.Sequential(*(nn.Linear(16, 16) for _ in range(4)))
    problem = gp.problem(gp.TorchStep(net, lambda net, x: net(x).square().mean(), (torch.zeros(4, 16),)), cluster="k40-2")
    plan = gp.Plan.of(problem, Placement(np.where(problem.graph.phase.among(later), 2, 1).astype(np.int32)))
    with pytest.raises(
        ValueError, match=f"^{to}: a module's weights, backward pass and updates are where it runs, and of 0, 1, 2 and 1 more"
    ):
        gp.export(problem, plan, to, tmp_path / "map.json")
    assert not (tmp_path / "map.json").exists()


@pytest.mark.parametrize("to", ["accelerate", "torch-pipelining"])
@pytest.mark.parametrize("name", ["vgg-16", "resnet-50-openvino", "mobilenet-v3-inference"])  # of TensorFlow, OpenVINO, Keras
def test_graphs_of_other_frameworks_are_refused_by_what_they_are(to: str, name: str, tmp_path: Path) -> None:
    problem = gp.problem(name, cluster="k40-2")
    with pytest.raises(ValueError, match=f"^{to}: takes modules of PyTorch, and the ops of {name} are not "):
        gp.export(problem, gp.place(problem, "gpu"), to, tmp_path / "map.json")


def test_where_the_module_is_not_at_hand_the_graph_decides_and_that_is_said() -> None:
    problem = gp.problem("gpt2-inference", cluster="k40-2")
    with pytest.warns(UserWarning, match="^accelerate: not tried, only checked by the graph, whose module is not at hand$"):
        made = on(problem, ["h.6", "h.7", "h.8", "h.9", "h.10", "h.11", "ln_f"]).device_map()
    assert made["h.5"] == 0 and made["h.6"] == 1 and made["wte"] == 0
    with pytest.raises(ValueError, match=r"^accelerate: the code of h\.6 gets tensors of two devices; place with .* --keep-whole 'h\.\*'$"):
        on(problem, ["h.6.mlp", "h.7", "h.8", "h.9", "h.10", "h.11", "ln_f"]).device_map()
    with pytest.raises(
        ValueError, match=r"^accelerate: the model's own code gets tensors of w.e \(gpu:.\) and w.e .*--keep-whole wte\+wpe$"
    ):
        on(problem, ["wpe"]).device_map()


def test_without_accelerate_it_is_said_that_the_map_was_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerate_trial, "find_spec", lambda name: None)
    with pytest.warns(
        UserWarning, match=r'^accelerate: not tried, .* for accelerate is not installed \(pip install "gnnplace\[accelerate\]"\)$'
    ):
        assert on(posed("residual"), ["2.", "3."]).device_map() == {"0": 0, "1": 0, "2": 1, "3": 1}


@pytest.mark.slow
def test_a_trial_leaves_the_module_as_it_was() -> None:
    pytest.importorskip("accelerate")
    net = nn.Sequential(Block(), nn.BatchNorm1d(8), nn.LSTM(8, 8), Block())
    before = [{name: id(value) for name, value in vars(part).items()} for part in net.modules()]
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    taken = gp.TorchInference(net[:2], (torch.zeros(4, 8),))
    on(gp.problem(taken, cluster="k40-2"), ["1"]).device_map()
    assert [{name: id(value) for name, value in vars(part).items()} for part in net.modules()] == before
    assert all(torch.equal(tensor, state[name]) for name, tensor in net.state_dict().items())
    assert all(isinstance(each, nn.Parameter) and type(each) is nn.Parameter for each in net.parameters())


@pytest.mark.slow
def test_a_command_tries_the_map_in_the_process_that_has_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    pytest.importorskip("accelerate")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    problem = gp.problem("net.py:step", cluster="k40-2")
    on(problem, ["1."]).save("whole.json")
    on(problem, ["0.down", "1."]).save("split.json")
    given = ["export", "net.py:step", "--cluster", "k40-2", "--to", "accelerate", "-q"]
    assert cli.main([*given, "--placement", "whole.json", "-o", "map.json"]) == 0
    assert json.loads(Path("map.json").read_text()) == {"0": 0, "1": 1}
    told = capfd.readouterr().err
    assert "not tried" not in told and told.startswith("accelerate: as exported")
    with pytest.raises(SystemExit) as left:
        cli.main([*given, "--placement", "split.json", "-o", "no.json"])
    assert left.value.code == 2 and "--to accelerate: the code of 0 gets tensors of two devices (" in capfd.readouterr().err
    assert not Path("no.json").exists()


class Packed(nn.Module):
    """A recurrent layer between two linear ones, on sequences of given lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.recurrent, self.outward = nn.Linear(3, 4), nn.GRU(4, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(self.inward(x), lengths.cpu(), batch_first=True)
        return self.outward(nn.utils.rnn.pad_packed_sequence(self.recurrent(packed)[0], batch_first=True)[0])


@pytest.mark.slow
def test_packed_sequences_run_on_an_accelerator_with_their_batch_sizes_on_the_cpu() -> None:
    pytest.importorskip("accelerate")
    taken = gp.TorchInference(Packed(), (torch.zeros(3, 5, 3), torch.tensor([5, 3, 2])), "example")
    assert accelerate_trial.try_map(taken, {"inward": 0, "recurrent": 1, "outward": 1}) == TrialResult()
