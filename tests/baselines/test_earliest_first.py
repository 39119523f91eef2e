"""ETF and SCT by heaps are ETF and SCT: the same schedules as of a plain search, on random problems with every feature."""

from __future__ import annotations

import numpy as np
import pytest
from support.plain_earliest_first import LostError, Plain
from support.random_problems import random_case
from support.slow import slow, thorough

from gnnplace.baselines.legal import device_sets
from gnnplace.baselines.scheduling.earliest_first import schedule_earliest_first
from gnnplace.baselines.scheduling.instance import Guide, instance
from gnnplace.baselines.scheduling.ranks import upward_rank_ns
from gnnplace.baselines.scheduling.sequence import sequence
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.units.units import units


def favourites(graph: ComputationGraph, seed: int) -> np.ndarray:
    """A consumer of each op drawn at random, or none."""
    generator = np.random.default_rng(seed)
    chosen = np.full(graph.num_ops, NONE, dtype=np.int64)
    for op in range(graph.num_ops):
        consumers = graph.edge_dst[graph.out_ptr[op] : graph.out_ptr[op + 1]]
        if len(consumers) and generator.random() < 0.8:
            chosen[op] = generator.choice(consumers)
    return chosen


@pytest.mark.parametrize("seeds", [40, slow(200), thorough(600)])
@pytest.mark.parametrize("with_favourites", [False, True])
def test_the_same_schedule_as_of_a_plain_search(with_favourites: bool, seeds: int):
    compared, waited = 0, 0
    for seed in range(seeds):
        posed = random_case(seed).problem()
        made, guide = units(posed.graph, "ops"), Guide(sequence(posed.graph, upward_rank_ns(posed)))
        child = favourites(posed.graph, seed) if with_favourites else np.full(posed.num_ops, NONE, dtype=np.int64)
        try:
            legal = device_sets(posed, made)[0]
            plain = Plain(posed.graph, given := instance(posed, made, legal, guide), child.tolist())
            expected = plain.run()
        except (LostError, ValueError):  # a unit finds no device: by hand in test_m_etf.py
            continue
        device, length = schedule_earliest_first(posed.graph, given, child)
        assert (device.tolist(), length) == expected, seed
        compared, waited = compared + 1, waited + plain.waited
    assert compared > seeds * 2 // 3 and (waited > seeds // 6 or not with_favourites)
