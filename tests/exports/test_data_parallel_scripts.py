"""DDP and FSDP2 as plans export them: processes train as one device does that accumulates gradients."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support import trained_networks
from torch.multiprocessing import spawn

import gnnplace as gp
from gnnplace.baselines.data_parallel.forms import sharded
from gnnplace.baselines.data_parallel.fsdp import KEPT, _devices, hybrid_shards
from gnnplace.baselines.data_parallel.shares import shares
from gnnplace.exports.targets import exported
from gnnplace.placement import Placement
from gnnplace.runtimes.refusal import UnsayableError

pytestmark = pytest.mark.filterwarnings("ignore:torch-pipelining. FSDP slices")


def plans(name: str, cards: int) -> dict[str, tuple[gp.Problem, Placement]]:
    """DDP, and FSDP with weights kept and fetched, on all cards; on four also in each half."""
    whole = gp.problem(trained_networks.step(name), cluster=f"k40-{cards}")
    ddp = gp.place(whole, "ddp")
    every = {"ddp": (ddp.problem, ddp)}
    for placed in KEPT:
        form, share = sharded(whole, placed), next(iter(shares(whole)))
        every[placed] = form, Placement(_devices(form, share), "memory")
    if cards == 4:
        every["hybrid"] = hybrid_shards(whole, next(iter(shares(whole)))._replace(ring_size=2))
    return every


@pytest.mark.slow
@pytest.mark.parametrize("cards", [2, 4])
@pytest.mark.parametrize("name", trained_networks.STEPS)
def test_scripts_train_as_one_device_does(name: str, cards: int, tmp_path: Path) -> None:
    folders = []
    for kind, (problem, placement) in plans(name, cards).items():
        gp.export(problem, placement, "torch-pipelining", tmp_path / kind)
        folders.append(tmp_path / kind)
    assert json.loads((folders[0] / "plan.json").read_text())["shares"] == [trained_networks.MICRO_BATCHES // cards] * cards
    spawn(trained_networks.trained, (name, folders, f"file://{tmp_path}/store", cards), nprocs=cards)
    losses, parameters = trained_networks.accumulated(name)
    for folder in folders:
        saved = [torch.load(folder / f"{rank}.pt") for rank in range(cards)]
        assert [each for some, _ in saved for each in some] == pytest.approx(losses, rel=1e-5)
        for _, trained in saved:
            assert trained.keys() == parameters.keys()
            for key, value in trained.items():
                torch.testing.assert_close(value, parameters[key].detach(), rtol=0, atol=1e-5)


def test_shares_are_written_and_what_is_no_data_parallelism_of_pytorch_s_is_refused() -> None:
    mixed = gp.problem("squeezenet", cluster="mixed-4", micro_batches=8)
    form, share = sharded(mixed, "fetched"), next(iter(shares(mixed)))
    uneven = Placement(_devices(form, share))
    with pytest.raises(UnsayableError, match=r"FSDP's processes wait for each other in every micro-batch, and theirs are 1, 1, 3, 3; plan"):
        exported(form, uneven, "torch-pipelining")
    layers = gp.problem(trained_networks.step("mlp"), cluster="k40-2", micro_batches=4, copies="whole", replicas=2, one_home=("7",))
    stands = Placement(np.where(layers.graph.copies.replica == 1, 2, 1).astype(np.int32))
    with pytest.raises(UnsayableError, match=r"DDP copies the whole network, and 7 has a home or shares of its own; plan with --"):
        exported(layers, stands, "torch-pipelining")
    half = json.loads(exported(*plans("mlp", 4)["hybrid"], "torch-pipelining")["plan.json"])
    assert (half["mesh"], half["shares"], half["devices"]) == ([2, 2], [1] * 4, [f"cuda:{card}" for card in range(4)])
    plan = json.loads(exported(*plans("mlp", 2)["fetched"], "torch-pipelining")["plan.json"])
    assert plan["mesh"] == [1, 2]
    assert plan["reshard_after_forward"] and plan["blocks"] == [str(number) for number in range(8)]
