"""split_specs cut in two: each is refused in one line, or two gloo processes run a step of the network by it."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from support import pipelined
from support.exported_networks import NETWORKS, step
from torch.multiprocessing import spawn

import gnnplace as gp
from gnnplace.placement import Placement
from gnnplace.units.modules import modules

pytestmark = pytest.mark.slow
MUST_RUN = {"plain", "residual", "attention", "language", "patches", "lstm", "gru", "compiled", "norms"}


def specs(name: str, folder: Path) -> list[dict[str, str]]:
    """What is written of a network cut after a third and two thirds of its modules."""
    problem, made = gp.problem(step(name, trains=True), cluster="k40-2"), []
    found = modules(problem.graph)
    for at in {max(1, found.num_modules // 3), 2 * found.num_modules // 3}:
        plan = gp.Plan.of(problem, Placement(np.where(found.module < at, 1, 2).astype(np.int32)))
        try:
            plan.export("torch-pipelining", folder / "spec.json")
        except ValueError as refused:
            assert re.fullmatch(r"torch-pipelining: .*(place with|no granularity would do|--devices with one device would).*", str(refused))
        else:
            made.append(json.loads((folder / "spec.json").read_text())["split_spec"])
    return made


def test_a_spec_cut_in_two_is_refused_or_runs_in_two_processes(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "torch-pipelining: not tried")
        written = [(name, spec) for name in NETWORKS for spec in specs(name, tmp_path)]
    spawn(pipelined.swept, (written, str(tmp_path)), nprocs=2)
    assert [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)] == [[None] * len(written)] * 2
    assert {name for name, _ in written} >= MUST_RUN
