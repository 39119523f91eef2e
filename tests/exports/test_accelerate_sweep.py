"""Maps cut in two: each is refused in one line, or accelerate dispatches the network by it on two accelerators, and it runs."""

from __future__ import annotations

import re

import numpy as np
import pytest
from support import fake_accelerators
from support.exported_networks import NETWORKS, step

import gnnplace as gp
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.units.modules import modules

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("error:accelerate. not tried")]
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
    if name in ("gpt2", "bert", "llama"):
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
