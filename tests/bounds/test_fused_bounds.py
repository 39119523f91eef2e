"""Lower bounds for every fusion: never above a step of any placement with any fusion, never above the bound without, and met by some."""

from collections import Counter
from random import Random

import numpy as np
import pytest
from support.every_placement import every_device, feasible, posed
from support.random_fusions import fused_case, random_fusion, with_kinds
from support.slow import parts, slow
from support.tight_problems import crowded_case, tight_case

from gnnplace.bounds.bounds import bounds, lower_bound, may_fuse, unfused
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.corpus import manifest
from gnnplace.corpus.clusters import cluster
from gnnplace.costs import roofline
from gnnplace.fused import fused_or_refusal
from gnnplace.fusion.defaults import default
from gnnplace.graph import Op, Output
from gnnplace.placement import Placement
from gnnplace.simulator.simulator import simulate, simulate_devices

SCHEDULES = ("critical-path", "fifo", "memory")


def fused_problems(case, random, count):
    """The problems of random fusions of a case, whatever device their ops may then stand on."""
    problem = case.problem()
    for _ in range(count):
        fusion = np.array(random_fusion(random, case, [0] * problem.num_ops), np.int32)
        found = fused_or_refusal(problem, fusion)
        if not isinstance(found, str):
            yield problem, found.problem


def fastest(made):
    """The fastest feasible step of all placements in few schedules; None where there is none."""
    rows = every_device(made)
    steps = [simulate_devices(made, rows, schedule) for schedule in SCHEDULES]
    return min((int(time) for each in steps for time in each.step_time_ns[feasible(made, each)]), default=None)


def cases(seed):
    """Cases of few ops: tight ones and crowded ones with kinds, and those of fused steps."""
    random = Random(f"bound {seed}")
    found = [with_kinds(random, tight_case(seed)), with_kinds(random, crowded_case(seed)), fused_case(seed)]
    return random, [case for case in found if len(case.cluster["devices"]) ** len(case.graph["ops"]) <= 3000]


@pytest.mark.parametrize("seeds", [range(0, 120, 24), *parts(range(400), 8)], ids=str)
def test_no_placement_with_any_fusion_beats_the_bound(seeds):
    met = Counter()
    for seed in seeds:
        random, chosen = cases(seed)
        for case in chosen:
            for problem, made in fused_problems(case, random, 2):
                best = fastest(made)
                if best is None:
                    continue
                assert all(bound <= best for bound in bounds(problem, fusion=True).values()), (seed, best, bounds(problem, fusion=True))
                assert all(bound <= best for bound in bounds(made).values()), (seed, best, bounds(made))
                met["steps"] += 1
                met["met"] += best == lower_bound(problem, fusion=True)
                met["fused"] += made.num_ops < problem.num_ops
                met["faster"] += best < lower_bound(problem)
    assert met["met"] >= 3 and met["fused"] >= met["steps"] // 6 and met["faster"] >= 1, met


@pytest.mark.parametrize("seeds", [range(15), slow(range(15, 400))])
def test_an_op_takes_no_more_in_the_problem_of_the_bound(seeds):
    for seed in seeds:
        problem = fused_case(seed).problem()
        least = unfused(problem)
        assert (least.time_ns <= problem.time_ns).all() and least.time_ns.min() >= 1
        alone = ~may_fuse(problem.graph)
        assert np.array_equal(least.time_ns[alone], problem.time_ns[alone])


@pytest.mark.parametrize("seeds", [range(15), slow(range(15, 400))])
def test_a_fused_op_takes_no_less_than_the_bound_says_of_its_ops(seeds):
    for seed in seeds:
        case = fused_case(seed)
        problem = case.problem()
        found = fused_or_refusal(problem, case.placement().fusion)
        if isinstance(found, str):
            continue
        least, most = (np.zeros_like(found.problem.time_ns) for _ in range(2))
        np.add.at(least, found.op, unfused(problem).time_ns)
        np.add.at(most, found.op, problem.time_ns)
        assert (least <= found.problem.time_ns).all() and (found.problem.time_ns <= most).all(), seed


def test_a_tensor_that_fits_nowhere_fast_may_stay_in_a_fused_op():
    """Alone `a` has to run on the slow device, whose memory holds what it makes; fused with its reader it does not."""
    ops = [
        Op("a", "MatMul", (Output(1000),), time_ns={"gpu": 10, "cpu": 100}, canonical_kind="matmul"),
        Op("b", "Relu", (Output(10),), time_ns={"gpu": 10, "cpu": 100}, canonical_kind="activation"),
    ]
    devices = (Device("gpu:0", "gpu", 500, 10**12, 10**12), Device("cpu:0", "cpu", 10**6, 10**12, 10**12))
    problem = posed(ops, [(0, 0, 1)], Cluster("pair", devices, (Link("cpu:0", "gpu:0", 10**9),)))
    (step,) = simulate(problem, [Placement(np.zeros(2, np.int32), fusion=np.zeros(2, np.int32))])
    assert lower_bound(problem, fusion=True) <= step.feasible_ns < lower_bound(problem)


@pytest.mark.parametrize("name", ["inception-v3-b1", slow("nmt-2"), slow("bert-base")])
def test_of_a_graph_of_the_corpus(name):
    """The default fusion on one GPU is faster than single ops, and not faster than the bound."""
    problem = roofline.problem(manifest.graph(name), cluster("k40-2"))
    found = fused_or_refusal(problem, default(problem))
    assert not isinstance(found, str)
    apart, together = (simulate_devices(each, np.ones((1, each.num_ops), np.int32)).step_time_ns[0] for each in (problem, found.problem))
    assert lower_bound(problem, fusion=True) <= lower_bound(found.problem) <= together < apart
