"""Pipelines in replicas: each is the pipeline of one on devices of its own, and rings sum the gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.graphs import equal_gpus
from support.layered import layered

import gnnplace as gp
from gnnplace.baselines.pipelines.dp_pp import TRIED, dp_pp
from gnnplace.baselines.pipelines.in_replicas import in_replicas
from gnnplace.baselines.pipelines.schedules import SCHEDULES
from gnnplace.cluster import Cluster
from gnnplace.costs.roofline import problem
from gnnplace.placement import check
from gnnplace.simulator.simulator import simulate
from gnnplace.transformations.micro_batches import micro_batches
from gnnplace.transformations.replicas import replicas


def posed(shares: list[int], cluster: Cluster, layers: int = 4):
    return problem(replicas(layered(layers), shares), cluster)


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_each_replica_runs_the_pipeline_of_one_alone(schedule: str):
    both, alone = posed([3, 3], equal_gpus(4)), problem(micro_batches(layered(4), 3), equal_gpus(2))
    placement = in_replicas(both, simulate, plan=SCHEDULES[schedule])
    of_one = SCHEDULES[schedule](alone, simulate)
    copies, small = both.graph.copies, alone.graph.copies
    used = [set(placement.device[copies.replica == replica].tolist()) for replica in (0, 1)]
    assert used[0].isdisjoint(used[1]) and len(used[0]) == len(used[1]) == len(set(of_one.device.tolist()))
    device_of = dict(zip(small.source.tolist(), of_one.device.tolist(), strict=True))
    for replica in (0, 1):
        for source, device in device_of.items():
            here = placement.device[(copies.replica == replica) & (copies.source == source) & ~copies.added]
            assert len(set(here.tolist())) == 1 and (here[0] == min(used[replica])) == (device == min(device_of.values()))
    (whole,), one = simulate(both, [placement]), simulate(alone, [of_one, replace(of_one, schedule="given")])
    least = min(result.step_time_ns for result in one)
    assert check(both, placement) is None
    # rings send half of a kilobyte of each of four gradients there and back, beside little arithmetic
    assert least <= whole.step_time_ns <= least + 4 * 2 * 1_000 + 2_000


def test_ops_keep_the_order_of_the_schedule():
    both = posed([4, 4], equal_gpus(4))
    placement = in_replicas(both, simulate, plan=SCHEDULES["1f1b"])
    (result,) = simulate(both, [replace(placement, schedule="in-order")], timeline=True)
    number = {name: op for op, name in enumerate(both.graph.op_names)}
    passes = [("f0", 0), ("f0", 1), ("b0", 0), ("f0", 2), ("b0", 1), ("f0", 3), ("b0", 2), ("b0", 3)]  # of the first of two stages
    for first in (0, 4):
        starts = [result.timeline.start_ns[number[f"{op}@{first + copy}"]] for op, copy in passes]
        assert starts == sorted(starts)


def test_stages_are_neighbours_or_their_copies_are():
    """The first two cards are fast: in runs a replica has both, in turns each replica has one."""
    cards = equal_gpus(4)
    fast = tuple(replace(device, flops_per_s=10**13) if number < 2 else device for number, device in enumerate(cards.devices))
    uneven = replace(cards, devices=fast)
    graph = replicas(gp.problem("squeezenet", cluster="k40-2", micro_batches=2).graph.copies.original, [2, 2])
    placement = in_replicas(problem(graph, uneven), simulate, plan=SCHEDULES["1f1b"])
    first = set(placement.device[graph.copies.replica == 0].tolist())
    assert len(first & {0, 1}) == 1


def test_the_fastest_of_all_numbers_of_replicas_and_schedules():
    given = problem(micro_batches(layered(6), 8), equal_gpus(8))
    proposal = dp_pp(given, simulate)
    (chosen,) = simulate(proposal.problem, [proposal.placement])
    every = []
    for shares in ([4, 4], [2, 2, 2, 2]):
        form = posed(shares, equal_gpus(8), layers=6)
        every += [simulate(form, [in_replicas(form, simulate, plan=SCHEDULES[name])])[0].step_time_ns for name in TRIED]
    assert chosen.step_time_ns == min(every)


def test_no_number_of_replicas_for_few_devices_or_micro_batches():
    for cards, number in ((2, 8), (3, 8), (4, 3), (4, 2)):
        assert dp_pp(problem(micro_batches(layered(3), number), equal_gpus(cards)), simulate) is None


def test_it_is_a_planner_and_a_rule(monkeypatch: pytest.MonkeyPatch):
    step = gp.problem("squeezenet", cluster="k40-4", micro_batches=4)
    plan = gp.place(step, "dp-pp")
    copies = plan.problem.graph.copies
    assert copies.shares == (2, 2) and copies.placed == "together"
    copied = gp.problem("squeezenet", cluster="k40-4", micro_batches=4, replicas=2)
    assert np.unique(gp.place(copied, "1f1b").device).size == 4
    with pytest.raises(ValueError, match="dlrm has no replicas with as many micro-batches each, two at least, and two devices"):
        gp.place(gp.problem("dlrm", cluster="k40-2", micro_batches=4), "dp-pp")
