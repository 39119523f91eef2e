"""Maps cut in two are refused in one line or run on two accelerators; placements of what accelerate keeps together run."""

from __future__ import annotations

import re

import numpy as np
import pytest
from support import fake_accelerators
from support.exported_networks import EVERY, NETWORKS, step
from support.parts import random_parts

import gnnplace as gp
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.units.modules import modules

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("error:accelerate. not tried")]
MODELS = ("gpt2", "bert", "llama", "opt", "mistral", "qwen2", "roberta", "distilbert", "vit", "resnet", "convnext")
VALUED = ("vit", "convnext")  # they read values of tensors while they are made, and fake ones have none
VALUED = ("vit", "convnext")  # they read values of tensors while they are made, and fake ones have none
CUTS = ("middle", "block", "random")
MUST_RUN = {"plain", "residual", "attention", "language", "patches", "gru", "skips", "slashed", "compiled", "norms", "llama"}


def cut(problem: Problem, where: str) -> Placement:
    """Modules on two GPUs: cut in the middle, before the block that begins behind it, or drawn."""
    found = modules(problem.graph)
    number = np.arange(found.num_modules)
    if where == "random":
        device = np.random.default_rng(0).integers(1, 3, size=found.num_modules)
    else:
        at = found.num_modules // 2
        blocks = [name.rpartition(".")[0] for name in found.names]
        while where == "block" and at < len(blocks) - 1 and blocks[at].split(".")[:2] == blocks[at - 1].split(".")[:2]:
            at += 1
        device = np.where(number < at, 1, 2)
    return Placement(device.astype(np.int32)[found.module])


@pytest.mark.parametrize("name", NETWORKS)
def test_a_map_cut_in_two_is_refused_or_runs(name: str) -> None:
    pytest.importorskip("accelerate")
    make, inputs = NETWORKS[name]
    if name in MODELS:
        pytest.importorskip("transformers")
    for trains in (False, True):
        problem = gp.problem(step(name, trains), cluster="k40-2")
        expected = fake_accelerators.undivided(make, inputs())
        for where in CUTS if not trains else CUTS[1:2]:
            try:
                made = gp.Plan.of(problem, cut(problem, where)).device_map()
            except ValueError as refused:
                assert re.fullmatch(
                    r"accelerate: .*(; place with --granularity module|on one device|; no granularity would|; hold ).*", str(refused)
                )
                assert where != "block" or name not in MUST_RUN, refused
            else:
                assert fake_accelerators.dispatched(make, made, inputs()) == expected


@pytest.mark.parametrize("name", EVERY)
def test_every_placement_of_what_accelerate_keeps_together_runs(name: str) -> None:
    """The seeds 0 to 199, shared by the networks, on four GPUs, and the plan of `--for accelerate`."""
    pytest.importorskip("accelerate")
    if name in MODELS:
        pytest.importorskip("transformers")
    make, inputs = EVERY[name]
    expected = fake_accelerators.undivided(make, inputs())
    for trains in (False, True):
        problem = gp.problem(step(name, trains), cluster="k40-4", runtime="accelerate")
        seeds = [seed for seed in range(list(EVERY).index(name), 200, len(EVERY)) if seed // len(EVERY) % 2 == trains]
        for plan in (*(random_parts(problem, seed) for seed in seeds), gp.place(problem, "heft")):
            if name == "constant":  # it holds a tensor that is no buffer
                with pytest.raises(ValueError, match="does not run on one accelerator either"):
                    gp.Plan.of(problem, plan).device_map()
            else:
                made = gp.Plan.of(problem, plan).device_map()
                assert name in VALUED or fake_accelerators.dispatched(make, made, inputs()) == expected
