"""PyTorch's pipeline takes the split_spec: a step on two processes finds the output, losses and gradients of the undivided module."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support import pipelined
from support.small_networks import NETWORKS, network
from torch import nn
from torch.multiprocessing import spawn

import gnnplace as gp
from gnnplace import cli
from gnnplace.exports.torch_pipelining import torch_pipelining
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.units.modules import modules

pytestmark = pytest.mark.filterwarnings("ignore:torch-pipelining. not tried")  # graphs of the corpus


def placed(problem: Problem, cuts: list[int], devices: list[int]) -> Placement:
    """Modules on devices, which change at the cuts."""
    found = modules(problem.graph)
    stage = np.searchsorted(cuts, np.arange(found.num_modules), side="right")
    return Placement(np.array(devices, dtype=np.int32)[stage][found.module])


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_of_gpipe_on_two_processes_is_the_undivided_one(name: str, tmp_path: Path) -> None:
    module, x = network(name)
    problem = gp.problem(gp.TorchInference(module, (x,)), cluster="k40-2")
    cut = modules(problem.graph).num_modules // 2
    gp.export(problem, placed(problem, [cut], [1, 2]), "torch-pipelining", tmp_path / "split_spec.json")
    made = json.loads((tmp_path / "split_spec.json").read_text())
    assert made["devices"] == ["cuda:0", "cuda:1"]
    assert made["split_spec"] == {modules(problem.graph).names[cut]: "BEGINNING"}
    spawn(pipelined.stage, (name, made["split_spec"], str(tmp_path)), nprocs=2)
    output, losses, gradients = pipelined.undivided(name)
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    torch.testing.assert_close(found[1][0], output)
    torch.testing.assert_close(found[1][1], losses)
    assert found[0][2].keys().isdisjoint(found[1][2]) and found[0][2] and found[1][2]
    torch.testing.assert_close(found[0][2] | found[1][2], gradients)


def test_stages_of_a_corpus_graph() -> None:
    problem = gp.problem("squeezenet", cluster="k40-4")
    names = modules(problem.graph).names
    found = json.loads(torch_pipelining(problem, placed(problem, [5, 9], [3, 0, 1])))
    assert found == {"devices": ["cuda:2", "cpu", "cuda:0"], "split_spec": {names[5]: "BEGINNING", names[9]: "BEGINNING"}}
    stages = gp.place(problem, granularity="stage", evaluations=5)
    assert gp.granularity(problem, stages) == "stage" and torch_pipelining(problem, stages)


def test_what_is_no_row_of_stages_is_refused(tmp_path: Path, capsys) -> None:
    problem = gp.problem("squeezenet", cluster="k40-2")
    names = modules(problem.graph).names
    again = placed(problem, [3, 6], [1, 2, 1])
    told = f"^torch-pipelining: a device runs one stage, and {names[6]} is on gpu:0 again, after {names[5]} on gpu:1; "
    with pytest.raises(ValueError, match=f"{told}place with --granularity stage$"):
        torch_pipelining(problem, again)
    scattered = Placement(np.arange(problem.num_ops, dtype=np.int32) % problem.num_devices)
    with pytest.raises(
        ValueError, match=r"^torch-pipelining: can't split a module, and the forward ops of .*; place with --granularity stage$"
    ):
        torch_pipelining(problem, scattered)
    path = str(tmp_path / "placement.json")
    assert cli.main(["place", "resnet-50", "--cluster", "k40-2", "--planner", "gpu", "-o", path, "-q"]) == 0
    with pytest.raises(SystemExit) as left:
        asked = ["--placement", path, "--to", "torch-pipelining", "-o", f"{tmp_path}/no.json"]
        cli.main(["export", "resnet-50", "--cluster", "k40-2", *asked])
    assert left.value.code == 2 and "--to torch-pipelining: " in capsys.readouterr().err and not (tmp_path / "no.json").exists()


def test_inputs_of_later_stages_are_refused() -> None:
    dlrm = gp.problem("dlrm", cluster="k40-2")
    cut = modules(dlrm.graph).names.index("tables.16")
    told = r"^torch-pipelining: the first stage alone takes inputs, and modules of later ones read some: bottom\.0, tables\.16, .* more; "
    with pytest.raises(ValueError, match=told):
        torch_pipelining(dlrm, placed(dlrm, [cut], [1, 2]))


def test_shared_parameters_and_unrolled_modules_are_refused() -> None:
    gpt2 = gp.problem("gpt2", cluster="k40-2")
    told = r"^torch-pipelining: a parameter is in one stage, and lm_head reads that of wte, in another stage; no granularity would do, "
    with pytest.raises(ValueError, match=told):
        torch_pipelining(gpt2, placed(gpt2, [30], [1, 2]))
    gru = gp.problem("gru-lm", cluster="k40-2")
    cut = modules(gru.graph).names.index("layers.1.input")
    with pytest.raises(
        ValueError,
        match=r"^torch-pipelining: a stage runs once, and layers\.0\.\w+ runs again after layers\.1\.\w+, .* --keep-whole layers$",
    ):
        torch_pipelining(gru, placed(gru, [cut], [1, 2]))
    llama = gp.problem("llama-7b", cluster="k40-8")  # its table of rotations is read by every stage, but not trained
    cuts = [modules(llama.graph).names.index("layers.16.attention_norm")]
    assert json.loads(torch_pipelining(llama, placed(llama, cuts, [1, 2])))["split_spec"] == {"layers.16.attention_norm": "BEGINNING"}


class Net(nn.Module):
    """Three layers, called as `forward` says; the first letters are of its kinds of calls."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.a, self.b, self.c, self.kind = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), kind

    def forward(self, x: torch.Tensor, mode: object = None) -> torch.Tensor:
        made = self.a(x)
        match self.kind:
            case "inputs":
                return self.c(made + self.b(x))
            case "never called":
                return self.c(made)
            case "skip":
                return self.c(self.b(made)) + made
            case "twice":
                return self.c(self.b(self.c(made)))
            case _:
                return self.c(self.b(made))


TOLD = {
    "inputs": r"the first stage alone takes inputs, and modules of later ones read some: b; no granularity",
    "never called": r"a stage begins with a module that is called, and b never is; --devices with one device would",
    "skip": r"a gradient goes to the stage before alone, and .* reads what a makes, several stages before; no granularity",
    "twice": r"a stage runs once, and c runs again after b, where the next one begins; no granularity",
    "flags": r"PyTorch doesn't run it so: PyTorch gives a stage tensors alone, and the module is called with str; no granularity",
    "rows": r"PyTorch doesn't run it so: inputs are cut along their first dimension, and they have 4, 1 rows; no granularity",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", TOLD)
def test_what_pytorch_would_refuse_is_refused_when_it_is_written(kind: str, tmp_path: Path) -> None:
    more = {"flags": ("plain",), "rows": (torch.zeros(1, 8),)}.get(kind, ())
    net = Net(kind)
    problem = gp.problem(gp.TorchStep(net, lambda net, *given: net(*given).square().mean(), (torch.zeros(4, 3, 8), *more)), cluster="k40-4")
    found = modules(problem.graph)
    plan = gp.Plan.of(problem, Placement(np.array([1 + "abc".index(found.names[at]) for at in found.module], dtype=np.int32)))
    with pytest.raises(ValueError, match=f"^torch-pipelining: {TOLD[kind]}"):
        plan.export("torch-pipelining", tmp_path / "spec.json")
    assert not (tmp_path / "spec.json").exists() and isinstance(net.a.weight, nn.Parameter) and not net.a.weight.is_meta


def test_of_a_graph_alone_it_is_said_that_the_stages_were_not_tried() -> None:
    problem = gp.problem("squeezenet", cluster="k40-2")
    told: list[str] = []
    torch_pipelining(problem, gp.place(problem, "gpu"), told.append)
    assert told == ["torch-pipelining: not tried, only checked by the graph, whose module is not at hand"]
