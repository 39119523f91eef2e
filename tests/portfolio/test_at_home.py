"""Variables and views stand where something computes with them, unless a memory is full."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.by_hand import gpus, link, made, op
from torch import nn

import gnnplace as gp
from gnnplace.baselines.searching.budget import Budget
from gnnplace.cluster import Cluster
from gnnplace.graph import NONE, Op, Output
from gnnplace.placement import Placement
from gnnplace.plan import Plan
from gnnplace.portfolio.at_home import at_home, homes
from gnnplace.portfolio.candidates import candidate
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate

ALL = gpus(*(link(src, dst) for src in range(3) for dst in range(3) if src != dst))


def weight(name: str, size: int = 4, **columns) -> Op:
    return Op(name, "parameter", (Output(size),), kernel=False, persistent_bytes=size, canonical_kind="variable", **columns)


def view(name: str, *source: int, size: int = 4) -> Op:
    return Op(name, "view", (Output(size, alias_of=source),), kernel=False, canonical_kind="reshape")


def chain(cluster: Cluster = ALL) -> Problem:
    """Two weights, each read through a view, by two ops in a row."""
    ops = [weight("v"), weight("w"), view("tv", 0, 0), view("tw", 1, 0), op("a", 50, 8), op("b", 50, 8)]
    return made(ops, [(0, 0, 2), (1, 0, 3), (2, 0, 4), (4, 0, 5), (3, 0, 5)], cluster)


def brought(problem: Problem, *device: int, evaluations: int = 1000, **columns) -> tuple[list[int], int]:
    """The devices after the way home, and the evaluations that it took."""
    budget = Budget(evaluations=evaluations)
    placement = Placement(np.array(device, dtype=np.int32), **columns)
    winner = at_home(problem, simulate, candidate(problem, simulate, "some", placement), budget)
    return winner.placement.device.tolist(), budget.spent


def test_a_weight_and_its_view_come_to_their_reader_and_the_step_may_last_a_nanosecond_more_for_each():
    problem = chain()
    parked = candidate(problem, simulate, "some", Placement(np.array([0, 1, 0, 1, 0, 0], dtype=np.int32)))
    home = at_home(problem, simulate, parked, Budget(evaluations=1000))
    assert home.placement.device.tolist() == [0] * 6
    assert parked.score.step_time_ns < home.score.step_time_ns <= parked.score.step_time_ns + 2


def test_the_way_home_is_one_evaluation_if_everything_fits_and_none_if_nothing_strays():
    assert brought(chain(), 2, 1, 2, 1, 0, 0) == ([0] * 6, 1)
    assert brought(chain(), 0, 1, 0, 1, 0, 1) == ([0, 1, 0, 1, 0, 1], 0)


def test_a_view_stays_beside_its_maker_and_goes_to_its_reader_only_from_elsewhere():
    """A slice on the device of its maker sends less than its whole."""
    problem = made([op("a", 50, 8), view("slice", 0, 0, size=2), op("b", 50, 8)], [(0, 0, 1), (1, 0, 2)], ALL)
    assert brought(problem, 0, 0, 1)[0] == [0, 0, 1]
    assert brought(problem, 0, 2, 1)[0] == [0, 1, 1]


def test_a_weight_of_several_readers_stays_at_any_of_them_and_goes_to_the_first():
    problem = made([weight("w"), op("a", 50, 8), op("b", 50, 8)], [(0, 0, 1), (0, 0, 2), (1, 0, 2)], ALL)
    assert [brought(problem, here, 0, 1)[0][0] for here in range(3)] == [0, 1, 0]


def test_a_full_memory_keeps_what_does_not_fit_away_and_takes_the_rest():
    """Both weights overflow the device of their readers; one of them fits."""
    room = max(chain_peak(parked) for parked in ([0, 1, 0, 1, 0, 0], [1, 0, 1, 0, 0, 0]))
    assert room < chain_peak([0] * 6)
    tight = replace(ALL, devices=tuple(replace(device, memory_bytes=room) for device in ALL.devices))
    device, spent = brought(chain(tight), 2, 1, 2, 1, 0, 0)
    assert device[4:] == [0, 0] and 1 <= device[:2].count(0) < 2 and spent > 1


def chain_peak(device: list[int]) -> int:
    (result,) = simulate(chain(), [Placement(np.array(device, dtype=np.int32))])
    return int(result.peak_memory_bytes[0])


def test_the_budget_ends_the_way_home():
    assert brought(chain(), 2, 1, 2, 1, 0, 0, evaluations=1)[1] == 1
    budget = Budget(evaluations=1)
    stray = candidate(chain(), budget.metered(simulate), "some", Placement(np.array([2, 1, 2, 1, 0, 0], dtype=np.int32)))
    assert at_home(chain(), simulate, stray, budget) is stray and budget.spent == 1


def test_what_is_placed_together_comes_home_together_or_stays():
    ops = [
        weight("w", colocation="x"),
        weight("v", colocation="x"),
        op("a", 50, 8),
        op("b", 50, 8, colocation="y"),
        weight("u", colocation="y"),
    ]
    problem = made(ops, [(0, 0, 2), (1, 0, 3), (4, 0, 2)], ALL)
    assert homes(problem, Placement(np.array([2, 2, 0, 1, 1], dtype=np.int32))).tolist() == [0, 0, 0, 1, 1]


def test_fused_views_stay_with_their_group():
    problem = chain()
    fusion = np.array([0, 1, 2, 3, 2, 5], dtype=np.int32)
    assert homes(problem, Placement(np.array([1, 1, 1, 1, 1, 0], dtype=np.int32), fusion=fusion)).tolist() == [1, 0, 1, 0, 1, 0]


def test_an_op_comes_home_only_where_it_is_allowed():
    ops = [weight("w", allowed=("gpu",)), op("a", 50, 8)]
    other = replace(ALL, devices=(replace(ALL.devices[0], kind="npu"), *ALL.devices[1:]))
    moved = [homes(made(ops, [(0, 0, 1)], cluster), Placement(np.array([1, 0], dtype=np.int32))).tolist() for cluster in (ALL, other)]
    assert moved == [[0, 0], [1, 0]]


def parked(problem: Problem, plan: Plan) -> list[str]:
    """Variables on a device where no op with a kernel reads them, through any number of views."""
    graph = problem.graph
    readers: list[set[int]] = [set() for _ in range(graph.num_ops)]
    for here in graph.order[::-1].tolist():
        if graph.kernel[here] or graph.dispatched[here]:
            readers[here] = {int(plan.device[here])}
            continue
        for edge in range(graph.out_ptr[here], graph.out_ptr[here + 1]):
            if graph.edge_data[edge] != NONE:
                readers[here] |= readers[graph.edge_dst[edge]]
    variables = np.flatnonzero(graph.canonical_kind.among(["variable"]) & (graph.persistent_bytes > 0))
    return [graph.op_names[row] for row in variables.tolist() if readers[row] and plan.device[row] not in readers[row]]


@pytest.mark.slow
def test_a_plan_parks_no_weight_on_an_idle_device():
    """On two cards and a host. So small a network is searched exactly, devices and order."""
    torch.manual_seed(0)
    network = nn.Sequential(*(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True, dropout=0.0) for _ in range(2)))
    problem = gp.problem(gp.TorchInference(network, (torch.randn(1, 16, 32),)), cluster="rtx4090-2")
    assert parked(problem, gp.place(problem, evaluations=100)) == []


NETWORKS = [
    "gpt2-inference",
    "bert-base-inference",
    "vit-b16-inference",
    "unet-inference",
    "resnet-18",
    "moe-8e-inference",
    "dlrm-inference",
]


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_a_plan_of_the_corpus_parks_no_weight_on_an_idle_device(network: str):
    problem = gp.problem(network, cluster="rtx4090-2")
    assert parked(problem, gp.place(problem, evaluations=300)) == []
