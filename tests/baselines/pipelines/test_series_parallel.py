"""GraphPipe's programme: chains equal enumeration, branches get stages side by side, and what fits depends on the depth."""

from __future__ import annotations

from itertools import combinations, pairwise
from random import Random

import numpy as np
import pytest
from support.equal_stages import equal_stages
from support.slow import thorough

import gnnplace as gp
from gnnplace.baselines.pipelines.graphpipe import branched_stages
from gnnplace.baselines.pipelines.series_parallel import Edges, NodeLoads, Partition, Programme, decomposed, without_ends
from gnnplace.portfolio import planners
from gnnplace.simulator.simulator import simulate


def network(*pairs: tuple[int, int], sent_ns: float = 0.0) -> Edges:
    src, dst = np.array(sorted(pairs)).T
    return Edges(src, dst, np.full(len(pairs), sent_ns))


def best(loads: NodeLoads, edges: Edges, devices: int, room: float = np.inf, micro_batches: int = 8) -> Partition | None:
    series = decomposed(np.arange(len(loads.work_ns)), edges)
    found = Programme(loads, room, micro_batches).of_series(series, devices, 0)
    return found[devices]


@pytest.mark.parametrize("seed", range(30))
def test_on_a_chain_the_programme_equals_enumeration(seed: int):
    random = Random(f"chain {seed}")
    count, micro_batches, room = random.randint(2, 7), random.randint(1, 4), random.choice([np.inf, 60.0, 90.0])
    devices = random.randint(1, min(4, count))
    loads = NodeLoads(*(np.array([float(random.randint(1, 20)) for _ in range(count)]) for _ in range(3)))
    edges = Edges(np.arange(count - 1), np.arange(1, count), np.array([float(random.randint(0, 30)) for _ in range(count - 1)]))
    least = np.inf
    for inside in combinations(range(1, count), devices - 1):
        cuts = (0, *inside, count)
        runs = [slice(first, end) for first, end in pairwise(cuts)]
        flight = [min(devices - stage, micro_batches) for stage in range(devices)]
        if all(loads.held[run].sum() + loads.saved[run].sum() * most <= room for run, most in zip(runs, flight, strict=True)):
            least = min(least, max([*(loads.work_ns[run].sum() for run in runs), *(edges.sent_ns[cut - 1] for cut in inside)]))
    found = best(loads, edges, devices, room, micro_batches)
    assert (np.inf if found is None else found.slowest_ns) == least


def test_equal_branches_have_stages_side_by_side():
    """A node, two branches of two nodes each, and a node: on six devices the longest path has four stages."""
    edges = network((0, 1), (1, 2), (0, 3), (3, 4), (2, 5), (4, 5))
    loads = NodeLoads(np.ones(6), np.zeros(6), np.ones(6))
    found = best(loads, edges, 6)
    assert found is not None and (found.slowest_ns, found.depth, len(found.stages)) == (1.0, 4, 6)
    assert best(loads, edges, 6, room=4.0) is not None  # a chain of six stages would hold six micro-batches in the first
    assert best(loads, edges, 6, room=3.0) is None


def test_skips_are_no_branches_and_nested_branches_are_found():
    skipped = decomposed(np.arange(4), network((0, 1), (1, 2), (2, 3), (0, 3)))
    assert len(skipped.parts) == 4 and not skipped.branches
    nested = decomposed(np.arange(6), network((0, 1), (1, 2), (1, 3), (2, 5), (3, 5), (0, 4), (4, 5)))
    ((nodes, branches),) = [part for part in nested.parts if part[1]]
    assert nodes.tolist() == [1, 2, 3, 4] and [each.branches for each in branches] == [True, False]


def test_masks_that_one_branch_reads_are_a_part_of_it():
    work_ns = np.array([1e-9, 5.0, 5.0, 5.0, 1e-9])
    assert without_ends(work_ns, network((0, 2), (1, 3), (2, 3), (3, 4))).tolist() == [2, 1, 2, 3, 3]


def test_two_towers_get_devices_side_by_side():
    problem = equal_stages(5, 5, 4, branches=2)
    stages = list(branched_stages(problem))
    forward = [problem.graph.op_names.index(f"forward.{stage}@0") for stage in range(5)]
    assert sorted(stages[-1][forward].tolist()) == [0, 1, 2, 3, 4] and len(stages) == 4


@pytest.mark.slow
@pytest.mark.parametrize(("network", "cluster", "gain"), [thorough("clip-b32", "v100-8", 0.95), ("two-tower", "k40-4", 1.0)])
def test_towers_run_faster_side_by_side_and_no_network_slower_than_1f1b(network: str, cluster: str, gain: float):
    problem = gp.problem(network, cluster=cluster, micro_batches=8)
    plans = [planners.PIPELINES[name](problem, simulate) for name in ("graphpipe", "1f1b")]
    first, second = simulate(problem, plans)
    assert first.step_time_ns <= gain * second.step_time_ns
