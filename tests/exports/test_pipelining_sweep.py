"""Random cuts in two: each is refused in one line, or two gloo processes run a step of the network by it."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator
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

MUST_RUN = {"plain", "residual", "attention", "language", "patches", "lstm", "gru", "compiled", "norms", "encoder"}
CUTS = 10  # of each network
# why others are not written, as docs/exporting.md counts them
REASONS = {
    "a parameter is in one stage": "share a parameter",
    "a stage runs once": "run again",
    "PyTorch doesn't run it so": "tracer",
    "the first stage alone takes inputs": "takes inputs",
    "a stage begins with a module that is called": "never called",
    "a stage begins with a module, and": "outside all modules",
}


def cuts(name: str, folder: Path) -> Iterator[str | dict[str, str]]:
    """Random cuts of a network into two stages: what is written of each, or why nothing is."""
    problem = gp.problem(step(name, trains=True), cluster="k40-2")
    parts, known = modules(problem.graph), dict[int, str | dict[str, str]]()
    for at in np.random.default_rng(len(name)).integers(1, parts.num_modules, CUTS).tolist():
        if at not in known:
            known[at] = written(gp.Plan.of(problem, Placement(np.where(parts.module < at, 1, 2).astype(np.int32))), folder / "spec.json")
        yield known[at]


def written(plan: gp.Plan, file: Path) -> str | dict[str, str]:
    try:
        plan.export("torch-pipelining", file)
    except ValueError as refused:
        assert re.fullmatch(r"torch-pipelining: .*(place with|no granularity would do|--devices with one device would).*", str(refused))
        return next(reason for reason in REASONS if str(refused).startswith(f"torch-pipelining: {reason}"))
    return json.loads(file.read_text())["split_spec"]


def test_what_a_stage_can_t_send_is_not_cut(tmp_path: Path) -> None:
    problem = gp.problem(step("patches", trains=True), cluster="k40-2")
    head = modules(problem.graph).names.index("head")  # reads the first token of each image, a view
    plan = gp.Plan.of(problem, Placement(np.where(modules(problem.graph).module < head, 1, 2).astype(np.int32)))
    with pytest.raises(ValueError, match=r"only contiguous tensors are sent, and stage 1 reads one of \[\d+, 8\] by \[40, 1\]"):
        plan.export("torch-pipelining", tmp_path / "spec.json")
    assert not (tmp_path / "spec.json").exists()


@pytest.mark.slow
def test_a_cut_in_two_is_refused_or_runs_in_two_processes(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "torch-pipelining: not tried")
        every = [(name, cut) for name in NETWORKS for cut in cuts(name, tmp_path)]
    specs = list({str(each): each for each in every if not isinstance(each[1], str)}.values())
    spawn(pipelined.swept, (specs, str(tmp_path)), nprocs=2)
    assert [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)] == [[None] * len(specs)] * 2
    assert {name for name, _ in specs} >= MUST_RUN
    refused = Counter(cut for _, cut in every if isinstance(cut, str))
    made = len(every) - refused.total()
    assert len(every) == CUTS * len(NETWORKS) == 200 and made >= 0.6 * len(every)
    page = Path("docs/exporting.md").read_text()
    assert f"of 200 random cuts of 20 networks {made} are written" in page
    for reason, words in REASONS.items():
        assert re.search(rf"\b{refused[reason]} [^,;]*{words}", page), (reason, refused[reason])
