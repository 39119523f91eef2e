"""An explanation covers the whole step, agrees with the simulator, and knows every module and op by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.by_hand import gpus, link, made, op
from support.random_fusions import fused_case
from support.random_problems import random_case
from support.slow import slow
from torch import nn

import gnnplace as gp
from gnnplace.cluster import MAX_RATE, Link
from gnnplace.fused import fused_or_refusal
from gnnplace.placement import Placement, check
from gnnplace.report.chain_words import MOST_STRETCHES, Stretch, shortened, stepped, stretches
from gnnplace.report.explanation import explain, explain_part
from gnnplace.schedules.critical_chain import chain_ns
from gnnplace.simulator.simulator import simulate

SEEDS = range(300)


def placed(*device: int, priority: list[int] | None = None) -> Placement:
    given = None if priority is None else np.array(priority, dtype=np.int64)
    return Placement(np.array(device, dtype=np.int32), "fifo" if given is None else "given", given)


# a (10 on gpu:0) sends 100 bytes to b (30 on gpu:1) in 100 + 5; c (40 on gpu:0) runs beside; d reads c and waits for its device
FORK = made(
    [op("a", 10, 100, layer="one"), op("b", 30, 0, layer="two"), op("c", 200, 0, layer="three"), op("d", 20, 0, layer="four")],
    [(0, 0, 1), (0, 0, 2), (0, 0, 3)],
    gpus(link(0, 1, latency_ns=5), link(1, 0)),
)


def test_the_chain_is_told_in_words():
    found = explain(FORK, placed(0, 1, 0, 0, priority=[9, 9, 8, 7]))
    assert found.chain == (
        Stretch(0, 10, "gpu:0", "step of one", 1, "the step begins"),
        Stretch(10, 210, "gpu:0", "step of three", 1, "a ended"),
        Stretch(210, 230, "gpu:0", "step of four", 1, "gpu:0 was busy with c; its inputs were there 0.000 ms earlier"),
    )
    assert found.step_time_ns == 230 and found.places_ns == {"gpu:0": 230}


def test_a_transfer_is_a_stretch_of_its_link():
    found = explain(FORK, placed(0, 1, 1, 1))
    assert [(part.where, part.start_ns, part.end_ns) for part in found.chain][:2] == [("gpu:0", 0, 10), ("gpu:0 -> gpu:1", 10, 115)]
    assert found.chain[2].why == "a arrived over gpu:0 -> gpu:1"


def test_what_would_help_is_what_the_simulator_says():
    """gpu:0 twice as fast: 5 + 105 for a to arrive, 30 for b. Nothing else is faster than c and d allow. d on gpu:1 leaves c alone: 210."""
    found = explain(FORK, placed(0, 1, 0, 0, priority=[9, 9, 8, 7]))
    assert found.changes == (("gpu:0", 5 + 105 + 30), ("gpu:1", 230), ("links out of gpu:0", 230))
    assert ("four", "gpu:1", 210, None) in found.moves


@pytest.mark.parametrize("rate", [MAX_RATE, MAX_RATE // 2 + 1])
def test_a_link_of_the_largest_rate_is_no_faster_but_its_overhead_is_half(rate):
    fast = Link("gpu:0", "gpu:1", rate, overhead_ns=8)
    pair = made([op("a", 10, 100), op("b", 30)], [(0, 0, 1)], gpus(fast))
    changes = explain(pair, placed(0, 1)).changes
    assert changes == (("gpu:1", 10 + 9 + 15), ("gpu:0", 5 + 9 + 30), ("links out of gpu:0", 10 + 5 + 30))


@pytest.mark.parametrize("seed", [*range(0, 40, 10), *map(slow, range(40, 300, 10))])
def test_stretches_cover_the_step_and_agree_with_the_time_on_the_chain(seed: int) -> None:
    for case in (random_case(each) for each in range(seed, seed + 10)):
        problem, placement = case.problem(), case.placement()
        if check(problem, placement) is not None:
            continue
        step = stepped(problem, placement)
        found = stretches(step)
        assert [part.start_ns for part in found] == [0, *(part.end_ns for part in found[:-1])] and found[-1].end_ns == step.step_time_ns
        on_chain = int(chain_ns(problem, placement.device, step.timeline).sum())
        assert sum(part.end_ns - part.start_ns for part in found if part.where != "-") == on_chain
        assert sum(part.end_ns - part.start_ns for part in shortened(found)) == step.step_time_ns
        assert sum(explain(problem, placement).places_ns.values()) == step.step_time_ns


@pytest.mark.parametrize("seeds", [range(60), slow(range(60, 400))], ids=str)
def test_every_move_is_what_moving_takes(seeds):
    moved = 0
    for case in map(random_case, seeds):
        problem, placement = case.problem(), case.placement()
        if check(problem, placement) is not None or problem.graph.colocation.index.max() >= 0:
            continue
        name = problem.graph.op_names[-1]
        for move in explain_part(problem, placement, name).moves:
            ops = np.array([each == name for each in problem.graph.op_names])
            device = problem.cluster.device_names.index(move.device)
            if not problem.allowed[ops, device].all():
                continue
            there = replace(placement, device=np.where(ops, device, placement.device).astype(np.int32))
            (result,) = simulate(problem, [there])
            assert (move.step_time_ns, move.infeasible) == (result.step_time_ns, result.infeasible)
            moved += 1
    assert moved > len(seeds) / 3


def test_many_stretches_are_shortened_without_losing_time():
    parts = [Stretch(10 * i, 10 * i + 10, f"gpu:{i % 2}", f"step of {i}", 1, "x ended") for i in range(200)]
    found = shortened(parts)
    assert len(found) == MOST_STRETCHES and sum(part.nodes for part in found) == 200
    assert found[0].start_ns == 0 and found[-1].end_ns == 2000 and found[0].what.startswith("step of 0")


@pytest.mark.slow
def test_a_fused_step_is_explained_by_its_fused_ops():
    explained = 0
    for seed in SEEDS:
        case = fused_case(seed)
        problem, placement = case.problem(), case.placement()
        assert placement.fusion is not None
        if isinstance(fused_or_refusal(problem, placement.fusion), str) or check(problem, placement) is not None:
            continue
        (result,) = simulate(problem, [placement])
        assert explain(problem, placement).step_time_ns == result.step_time_ns
        explained += 1
    assert explained > 20


def test_names_are_modules_their_beginnings_and_ops():
    layers = ["h.0.a", "h.0.b", "h.1.a", "h.10.a"]
    variables = [op(f"w{i}", 1, 0, layer=layer, persistent_bytes=10**5 + i) for i, layer in enumerate(layers)]
    ops = [op(f"op{i}", 10, 0, layer=layer) for i, layer in enumerate(layers)]
    edges = [(i, 0, 4 + i) for i in range(4)] + [(4 + i, 0, 5 + i) for i in range(3)]
    problem = made([*variables, *ops], edges, gpus(link(0, 1), link(1, 0)))
    placement = placed(*[0, 0, 1, 1] * 2)
    assert explain_part(problem, placement, "h.0").variable_bytes == 200_001
    assert explain_part(problem, placement, "h.1").variable_bytes == 100_002
    assert explain_part(problem, placement, "w3").variable_bytes == 100_003
    with pytest.raises(ValueError, match=r"^'h.2' is no module or op of the graph; choose from h\.0\.a, "):
        explain_part(problem, placement, "h.2")


class Both(nn.Module):
    def __init__(self, net: nn.ModuleDict) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net["de/low"](self.net["de"](x))


def test_a_slash_in_a_name_of_pytorch_begins_no_part():
    net = nn.ModuleDict({"de": nn.Linear(4, 4), "de/low": nn.Linear(4, 4)})
    step = gp.TorchInference(nn.Sequential(Both(net)), (torch.zeros(2, 4),))
    problem = gp.problem(step, cluster="k40-2")
    plan = gp.place(problem, "gpu")
    parts = [plan.explain(name) for name in ("0.net.de", "0.net.de/low", "0.net")]
    assert [part.variable_bytes for part in parts] == [80, 80, 160]


def test_a_placement_without_a_step_is_refused():
    problem = made([op("a", 1, 8), op("b", 1)], [(0, 0, 1)], gpus())
    with pytest.raises(ValueError, match=r"^placement: has no step: "):
        explain(problem, placed(0, 1))
