"""Bounds on random problems: never above a step of any placement in any order, monotone, and each of them the best one for some."""

import itertools
from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from support.every_placement import best_step, feasible, posed, some_steps
from support.graphs import equal_gpus, op
from support.random_problems import random_case
from support.slow import parts, slow
from support.tight_problems import crowded_case, tight_case

from gnnplace.bounds import bounds as module
from gnnplace.bounds.bounds import bound_name, bounds, least_times, lower_bound
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.graph import Op, Output
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate_devices

NAMES = {"critical-path", "load", "channels", "paths", "windows", "split"}


@pytest.mark.parametrize("seeds", [8, slow(40)])
def test_many_classes_are_taken_as_the_best_of_all(monkeypatch, seeds):
    for seed in range(seeds):
        made, merged = (tight_case(seed).problem() for _ in range(2))
        apart = bounds(made)
        with monkeypatch.context() as patch:
            patch.setattr(module, "MOST_PRICED", 1)
            patch.setattr(module, "MOST_CLASSES", 1)
            together = bounds(merged)
        assert together["load"] <= apart["load"] * 1.001 + 1
        best = best_step(made)
        assert best is None or max(together.values()) <= best


@pytest.mark.parametrize("seed", [*range(10), *map(slow, range(10, 40))])
def test_more_of_anything_never_raises_the_load_or_the_critical_path(seed):
    case = tight_case(seed)
    made, devices = case.problem(), case.cluster["devices"]
    roomier = [device | {"memory_bytes": 2 * device["memory_bytes"]} for device in devices]
    wider = [device | {"streams": 1 + device.get("streams", 1)} for device in devices]
    better = [replace(case, cluster=case.cluster | {"devices": more}).problem() for more in (roomier, wider)]
    slower = Problem(made.graph, made.cluster, made.time_ns * 2)
    for name in ("critical-path", "load"):
        assert all(bounds(more)[name] <= bounds(made)[name] + 1 for more in better)
        assert bounds(slower)[name] >= bounds(made)[name]
    assert bounds(slower)["critical-path"] == 2 * bounds(made)["critical-path"]


def wide_case(seed):
    """Two sources and three consumers of each on three devices, of which one waits for a source; no op is behind both or before all."""
    random = Random(seed)
    ops = [op(f"source{i}", random.randint(6, 9)) for i in range(2)] + [op(f"op{i}", random.randint(4, 9)) for i in range(6)]
    return posed(ops, [(i % 2, -1, i + 2) for i in range(6)], equal_gpus(3))


def zigzag_case(seed):
    """Ops in a zigzag of edges, too much for one memory, of which no op has enough before it or behind it to tell."""
    random = Random(seed)
    ops = [op(f"op{i}", random.randint(1, 9), random.randint(40, 60), persistent_bytes=300 * (i in (0, 4))) for i in range(5)]
    return posed(ops, [(0, 0, 1), (2, 0, 1), (2, 0, 3), (4, 0, 3)], equal_gpus(2, memory_bytes=random.randint(500, 599)))


def offload_case(seed):
    """Weights that fit no memory, as aliases or not, whose readers take long on the slow device and little on two fast ones."""
    random = Random(seed)
    weights, views, edges = [], [], []
    for i in range(4):
        size = random.randint(200, 400)
        weights.append(op(f"w{i}", 1, random.randint(200, 400), persistent_bytes=size))
        if aliased := random.random() < 0.5:
            views.append(Op(f"view{i}", "View", (Output(random.randint(100, 200), alias_of=(i, 0)),), time_ns={"gpu": 1, "cpu": 1}))
            edges.append((i, 0, 3 + len(views)))
        edges.append((3 + len(views) if aliased else i, 0, i - 4))
    readers = [Op(f"op{i}", "Op", time_ns={"gpu": random.randint(1, 9), "cpu": random.randint(300, 5000)}) for i in range(4)]
    ops = [*weights, *views, *readers]
    return posed(ops, [(src, out, dst % len(ops)) for src, out, dst in edges], host_and_gpus(2, memory_bytes=random.randint(600, 900)))


def host_and_gpus(count, memory_bytes):
    devices = (Device("cpu:0", "cpu", 10**9, 10**12, 10**12), *equal_gpus(count, memory_bytes=memory_bytes).devices)
    return Cluster("host", devices, tuple(Link(a.name, b.name, 10**9) for a in devices for b in devices if a is not b))


@pytest.mark.parametrize(("seeds", "least"), [(50, 1), slow(200, 5)])
def test_each_bound_is_the_best_one_somewhere(seeds, least):
    named = Counter(bound_name(tight_case(seed).problem()) for seed in range(seeds))
    named += Counter(bound_name(case(seed)) for seed in range(seeds // 10) for case in (wide_case, zigzag_case, offload_case))
    assert set(named) == NAMES and min(named.values()) >= least, named


@pytest.mark.parametrize("seeds", [range(0, 320, 64), *parts(range(320), 8)], ids=str)
def test_never_above_the_optimum_of_tight_problems(seeds):
    reached = 0
    for seed in seeds:
        cases = (tight_case(seed).problem(), crowded_case(seed).problem())
        for made in (*cases, *((wide_case(seed), zigzag_case(seed), offload_case(seed)) if seed < 64 else ())):
            best = best_step(made)
            assert best is None or all(bound <= best for bound in bounds(made).values()), (seed, best, bounds(made))
            reached += best == lower_bound(made)
    assert reached >= 5


@pytest.mark.parametrize("seeds", [range(0, 160, 32), *parts(range(160), 4)], ids=str)
def test_nothing_starts_or_ends_too_early_in_any_order(seeds):
    """Heads and tails of every op on its device, and the bounds, against timelines of random placements in random orders."""
    looked_at, met = 0, Counter()
    for seed in seeds:
        for case in (tight_case, crowded_case):
            made = case(seed).problem()
            looked_at += holds(made, np.random.default_rng(seed), met)
    assert looked_at >= 15 * len(seeds) and min(met["head"], met["tail"], met["step"]) >= len(seeds) // 2, (looked_at, met)


def holds(made, generator, met):
    """Asserts the bounds of some steps of a problem, counts in `met` what is met exactly, and returns how many steps there were."""
    least, found = least_times(made), some_steps(made, generator, 30)
    ops = np.arange(made.num_ops)
    for placement, result in found:
        head, tail = (column[ops, placement.device] for column in (least.head_ns, least.tail_ns))
        early, late = result.timeline.start_ns - head, result.step_time_ns - result.timeline.end_ns - tail
        assert early.min() >= 0 and late.min() >= 0 and result.step_time_ns >= least.step_ns, (placement, result, least)
        met["head"] += int(((early == 0) & (head > 0)).sum())
        met["tail"] += int(((late == 0) & (tail > 0)).sum())
        met["step"] += result.step_time_ns == least.step_ns
    return len(found)


@pytest.mark.parametrize("seed", [*range(0, 50, 3), *(slow(seed) for seed in range(150) if seed >= 50 or seed % 3)])
def test_never_above_a_feasible_step_of_small_problems(seed):
    made = random_case(seed).problem()
    rows = np.array(list(itertools.islice(itertools.product(range(made.num_devices), repeat=made.num_ops), 2000)), dtype=np.int32)
    steps = simulate_devices(made, rows)
    fastest = steps.step_time_ns[feasible(made, steps)].min(initial=2**62)
    assert all(bound <= fastest for bound in bounds(made).values())
