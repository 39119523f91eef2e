"""Planned orders of passes, exported: PyTorch's runtime trains by them as one device does that accumulates gradients."""

from __future__ import annotations

import json
import runpy
import warnings
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from support import trained_networks
from torch.multiprocessing import spawn

import gnnplace as gp
from gnnplace import cli
from gnnplace.baselines.searching.budget import Budget
from gnnplace.exports.targets import exported
from gnnplace.exports.torch_pipelining import torch_pipelining
from gnnplace.placement import Placement
from gnnplace.portfolio.portfolio import portfolio
from gnnplace.runtimes.refusal import UnsayableError
from gnnplace.simulator.simulator import simulate

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch-pipelining. as exported"),
    pytest.mark.filterwarnings("ignore:torch-pipelining. gradients of replicas are summed after the last pass"),
]
NAMED = ("gpipe", "1f1b", "zb-h1", "interleaved-1f1b", "zb-v", "v-half")


def posed(name: str, cards: int) -> gp.Problem:
    whole = gp.problem(trained_networks.step(name), cluster=f"k40-{cards}")
    return gp.constrained(whole, gp.Constraint("module", accelerators_only=True)).problem


@pytest.mark.slow
@pytest.mark.parametrize("cards", [2, 4])
@pytest.mark.parametrize("name", trained_networks.STEPS)
def test_exported_orders_train_as_one_device_does(name: str, cards: int, tmp_path: Path) -> None:
    problem, folders = posed(name, cards), []
    plans: dict[str, Placement] = {each: gp.place(problem, each) for each in NAMED}
    plans["planned"] = portfolio(problem, simulate, Budget(evaluations=300)).placement
    for each, plan in plans.items():
        try:
            gp.export(problem, plan, "torch-pipelining", tmp_path / each)
        except UnsayableError as refused:  # some cut a sum from what it adds
            assert "several stages before" in str(refused) or "takes inputs" in str(refused)
            continue
        if len((tmp_path / each / "schedule.csv").read_text().splitlines()) == cards:
            folders.append(tmp_path / each)
    assert len(folders) >= 3
    spawn(trained_networks.trained, (name, folders, f"file://{tmp_path}/store", cards), nprocs=cards)
    losses, parameters = trained_networks.accumulated(name)
    for folder in folders:
        found = [torch.load(folder / f"{rank}.pt") for rank in range(cards)]
        assert [each for each, _ in found if each] == [losses], folder.name
        changed = [changed for _, changed in found]
        assert sum(map(len, changed)) == len(parameters), "each parameter is trained in one stage"
        for key, value in {key: value for some in changed for key, value in some.items()}.items():
            near = 1e-6 if name == "mixer" else 0.0  # what is sent is contiguous; one device sums views, in another order
            torch.testing.assert_close(value, parameters[key].detach(), rtol=0, atol=near, msg=f"{folder.name}, {key}")


@pytest.mark.slow
@pytest.mark.parametrize("name", trained_networks.STEPS)
def test_pipelines_in_replicas_train_as_one_device_does(name: str, tmp_path: Path) -> None:
    whole = gp.problem(trained_networks.step(name), cluster="k40-4", micro_batches=trained_networks.MICRO_BATCHES, replicas=2)
    problem, folders = gp.constrained(whole, gp.Constraint("module", accelerators_only=True)).problem, []
    for each in NAMED:
        try:
            gp.export(problem, gp.place(problem, each), "torch-pipelining", tmp_path / each)
        except UnsayableError as refused:
            assert "several stages before" in str(refused) or "takes inputs" in str(refused)
            continue
        plan = json.loads((tmp_path / each / "plan.json").read_text())
        if len(plan["devices"]) == 4:
            assert sorted(chain.from_iterable(plan["replicas"])) == [0, 1, 2, 3] and plan["micro_batches"] == [2, 2]
            folders.append(tmp_path / each)
    assert len(folders) >= 3
    spawn(trained_networks.trained, (name, folders, f"file://{tmp_path}/store", 4), nprocs=4)
    losses, parameters = trained_networks.accumulated(name)
    for folder in folders:
        saved = [torch.load(folder / f"{rank}.pt") for rank in range(4)]
        ranks = json.loads((folder / "plan.json").read_text())["replicas"]
        found = [loss for rank in chain.from_iterable(ranks) for loss in saved[rank][0]]
        assert found == pytest.approx(losses, rel=1e-5)
        for some in ranks:
            trained = {key: value for rank in some for key, value in saved[rank][1].items()}
            assert trained.keys() == parameters.keys(), "each replica trains every parameter"
            for key, value in trained.items():
                torch.testing.assert_close(value, parameters[key].detach(), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_replicas_with_unequal_shares_train_as_one_device_does(tmp_path: Path) -> None:
    def with_shares(*shares: int) -> gp.Problem:
        step = gp.problem(trained_networks.step("mlp"), cluster="k40-4", micro_batches=trained_networks.MICRO_BATCHES, shares=shares)
        return gp.constrained(step, gp.Constraint("module", accelerators_only=True)).problem

    equal, unequal = with_shares(2, 2), with_shares(1, 3)
    of_equal, copies = equal.graph.copies, unequal.graph.copies
    device = gp.place(equal, "1f1b").device
    stands = dict(zip(zip(of_equal.source.tolist(), of_equal.replica.tolist(), strict=True), device.tolist(), strict=True))
    placed = [stands[at] for at in zip(copies.source.tolist(), copies.replica.tolist(), strict=True)]
    gp.export(unequal, Placement(np.array(placed, dtype=np.int32)), "torch-pipelining", tmp_path / "unequal")
    assert json.loads((tmp_path / "unequal" / "plan.json").read_text())["micro_batches"] == [1, 3]
    spawn(trained_networks.trained, ("mlp", [tmp_path / "unequal"], f"file://{tmp_path}/store", 4), nprocs=4)
    _, parameters = trained_networks.accumulated("mlp")
    for rank in range(4):
        for key, value in torch.load(tmp_path / "unequal" / f"{rank}.pt")[1].items():
            torch.testing.assert_close(value, parameters[key].detach(), rtol=0, atol=1e-5)


def test_the_order_of_a_named_schedule_is_written_as_pytorch_has_it(tmp_path: Path) -> None:
    problem = posed("mlp", 2)
    files = torch_pipelining(problem, gp.place(problem, "1f1b"))
    plan, (first, last) = json.loads(files["plan.json"]), files["schedule.csv"].splitlines()
    assert first == "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3" and last == "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3"
    assert (plan["micro_batches"], plan["devices"], plan["stages"]) == ([4], ["cuda:0", "cuda:1"], [[0], [1]])
    assert [*plan["split_spec"].values()] == ["BEGINNING"] and len(files["run.py"].splitlines()) < 120


def test_what_a_pipeline_of_pytorch_can_t_run_is_refused() -> None:
    whole = gp.problem(trained_networks.step("mlp"), cluster="k40-2")
    free = gp.problem(trained_networks.step("mlp"), cluster="k40-2", copies="free")
    copies = free.graph.copies
    apart = Placement(np.where(copies.micro_batch == 2, 2, 1).astype(np.int32))
    with pytest.raises(UnsayableError, match=r"of inputs, 0, 1\.norm and 31 more some run elsewhere; place with --copies together"):
        exported(free, apart, "torch-pipelining")
    mixed = gp.place(gp.constrained(whole, gp.Constraint("module")).problem, "1f1b").device.copy()
    mixed[mixed == 2] = 0
    with pytest.raises(UnsayableError, match=r"over NCCL between cards, or over gloo between CPUs, and this step runs on both"):
        exported(whole, Placement(mixed), "torch-pipelining")


def test_replicas_that_are_no_copies_of_a_pipeline_are_refused() -> None:
    step = trained_networks.step("mlp")
    whole = gp.constrained(gp.problem(step, cluster="k40-4", micro_batches=4, replicas=2), gp.Constraint("module")).problem
    plan = gp.place(whole, "1f1b")
    copies, second = whole.graph.copies, whole.graph.copies.replica == 1
    ours = ~second
    placed = exported(whole, plan, "torch-pipelining")
    assert {*placed} == {"plan.json", "schedule_0.csv", "schedule_1.csv", "run.py"}
    shared = plan.device.copy()
    of_source = dict(zip(copies.source[ours].tolist(), plan.device[ours].tolist(), strict=True))
    shared[second] = [of_source[source] for source in copies.source[second].tolist()]
    with pytest.raises(UnsayableError, match="a process runs stages of one replica; plan with --planner dp-pp"):
        exported(whole, Placement(shared), "torch-pipelining")
    alone = plan.device.copy()
    alone[second] = alone[second].min()
    with pytest.raises(UnsayableError, match="gradients of like stages are summed, and replicas are cut in different places"):
        exported(whole, Placement(alone), "torch-pipelining")
    homes = gp.problem(step, cluster="k40-4", micro_batches=4, replicas=2, one_home=("7",))
    with pytest.raises(UnsayableError, match="each replica has the whole network, and 7 has a home or shares of its own; plan with"):
        exported(homes, Placement(np.where(homes.graph.copies.replica == 1, 2, 1).astype(np.int32)), "torch-pipelining")


@pytest.mark.parametrize("planner", ["dp-pp", "ddp"])
def test_a_process_runs_on_the_card_that_the_plan_gives_it(planner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gp.problem(trained_networks.step("mlp"), cluster="v100-8")
    plan = gp.place(gp.constrained(whole, gp.Constraint("module", accelerators_only=True)).problem, planner)
    gp.export(plan.problem, plan, "torch-pipelining", tmp_path / "made")
    document = json.loads((tmp_path / "made" / "plan.json").read_text())
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)  # of each of two nodes
    card, cards = runpy.run_path(str(tmp_path / "made" / "run.py"))["card"], []
    for rank in range(len(document["devices"])):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        cards.append(card().index)
    numbers = [int(name.removeprefix("cuda:")) for name in document["devices"]]
    assert numbers == sorted(numbers) and cards == [number % 4 for number in numbers]


def test_gradients_of_weights_that_read_what_a_stage_sends_are_not_put_off() -> None:
    problem = posed("mlp", 4)  # its cuts are within blocks: the sum that a stage sends is read by its normalisation
    named = torch_pipelining(problem, gp.place(problem, "1f1b"))
    planned = torch_pipelining(problem, gp.place(problem, "zb-h1"))
    rows, firsts = planned["schedule.csv"].splitlines(), [*json.loads(planned["plan.json"])["split_spec"]]
    assert "W" not in named["schedule.csv"] and firsts == ["2.inner.2", "4.inner.0", "6.norm"]
    sends_again = [True, True, False, False]  # the first two are cut within a block
    assert [("I" not in row and "W" not in row) for row in rows] == sends_again
    assert rows[3] == "3F0,3I0,3F1,3I1,3F2,3I2,3F3,3I3,3W0,3W1,3W2,3W3"


def test_gradients_that_are_views_are_not_sent_by_themselves() -> None:
    problem = posed("mixer", 2)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "torch-pipelining. not tried")
        _, last = torch_pipelining(problem, gp.place(problem, "zb-h1"))["schedule.csv"].splitlines()
    assert "I" not in last and "W" not in last and "1B3" in last, last


def test_one_micro_batch_needs_a_file_and_several_a_folder(tmp_path: Path, capsys) -> None:
    placement, folder = str(tmp_path / "placement.json"), tmp_path / "made"
    folder.mkdir()
    assert cli.main(["place", "squeezenet", "--cluster", "k40-2", "--planner", "gpu", "-o", placement, "-q"]) == 0
    export = ["export", "squeezenet", "--cluster", "k40-2", "--placement", placement, "--to", "torch-pipelining", "-o", str(folder), "-q"]
    with pytest.raises(SystemExit) as left:
        cli.main(export)
    assert left.value.code == 2 and "is a folder; name a file to write" in capsys.readouterr().err
    several = ["--micro-batches", "4", "--planner", "1f1b", "--granularity", "module"]
    assert cli.main(["place", "squeezenet", "--cluster", "k40-2", *several, "-o", placement, "-q"]) == 0
    assert cli.main(export) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["plan.json", "run.py", "schedule.csv"]
