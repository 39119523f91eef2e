"""PipeDream with replication: the programme equals enumeration on short rows, and its forms stand where the stages say."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

import gnnplace as gp
from gnnplace.baselines.pipeline import rows
from gnnplace.baselines.pipelines.pipedream import RowLoads, Stage, loads_of_row, pipedream, stages
from gnnplace.baselines.pipelines.rows import of_one_micro_batch
from gnnplace.placement import check
from gnnplace.simulator.simulator import simulate


def every(end: int, count: int, replicas: int) -> Iterator[list[Stage]]:
    """All ways to cut `end` blocks into stages on at most `count` devices."""
    if not end:
        yield []
    for start in range(end):
        for number in (1, replicas):
            if number <= count:
                yield from ([*before, Stage(start, end, number)] for before in every(start, count - number, replicas))


def bottleneck(loads: RowLoads, cut: list[Stage], memory: float) -> float:
    worst = 0.0
    for first, end, number in cut:
        ring = 2 * (number - 1) / number * (loads.gradient_ns[end] - loads.gradient_ns[first])
        if loads.held[end] - loads.held[first] > memory:
            return np.inf
        worst = max(worst, (loads.work_ns[end] - loads.work_ns[first]) / number + ring, loads.send_ns[first])
    return worst


def drawn(random: Random, blocks: int) -> RowLoads:
    sums = [np.cumsum([0.0, *(random.randint(0, most) for _ in range(blocks))]) for most in (100, 60, 50)]
    return RowLoads(sums[0], sums[1], np.array([0.0, *(random.randint(0, 80) for _ in range(blocks))]), sums[2])


@pytest.mark.parametrize("seed", range(40))
def test_the_programme_equals_enumeration(seed):
    random = Random(f"pipedream {seed}")
    loads, count, memory = drawn(random, random.randint(1, 5)), random.randint(2, 5), random.choice([np.inf, 120.0, 60.0])
    replicas = random.randint(2, count)
    best = stages(loads, count, replicas, memory)
    least = min(bottleneck(loads, cut, memory) for cut in every(len(loads.work_ns) - 1, count, replicas))
    assert (bottleneck(loads, best, memory) if best else np.inf) == pytest.approx(least)
    assert sum(stage.devices for stage in best) <= count


def test_vgg_has_its_convolutions_on_all_cards_but_one_as_published():
    """SOSP 2019, table 1: VGG-16's convolutions are replicated, and its large dense layers stand on a device of their own."""
    given = gp.problem("vgg-16", cluster="k40-4", micro_batches=8)
    place = next(iter(rows(of_one_micro_batch(given))))
    first, last = stages(loads_of_row(given, place), 4, 3, np.inf)
    assert (first.devices, last.devices) == (3, 1)
    layer = given.graph.original.layer
    assert place[layer.among(["stage_0/0"])].max() < first.end <= place[layer.among(["dense_1"])].min()


def test_a_stage_on_one_card_has_one_home_and_the_others_replicas():
    proposal = pipedream(gp.problem("gpt2", cluster="k40-4", micro_batches=8), simulate)
    graph, device = proposal.problem.graph, proposal.placement.device
    assert graph.copies.replicas in (2, 3)
    held = np.flatnonzero(graph.persistent_bytes)
    copies = np.bincount(graph.copies.source[held])
    assert set(copies[copies > 0].tolist()) <= {1, graph.copies.replicas}
    assert set(device[held].tolist()) == {1, 2, 3, 4}
    assert check(proposal.problem, proposal.placement) is None
