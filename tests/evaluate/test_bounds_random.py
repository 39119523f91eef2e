"""Bounds on random problems: never above the fastest of all placements, monotone, and each of them the best one for some."""

import itertools
from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from every_placement import best_step, posed
from graphs import equal_gpus, op
from random_problems import Case, random_case, random_cluster, random_graph

from gnnplace.evaluate import bounds as module
from gnnplace.evaluate.bounds import bound_name, bounds, lower_bound
from gnnplace.evaluate.simulator import feasible, simulate_devices
from gnnplace.problem import Problem

NAMES = {"critical-path", "load", "paths", "windows", "split"}


def test_many_classes_are_taken_as_the_best_of_all(monkeypatch):
    for seed in range(40):
        made, merged = (tight_case(seed).problem() for _ in range(2))
        apart = bounds(made)
        with monkeypatch.context() as patch:
            patch.setattr(module, "MOST_PRICED", 1)
            patch.setattr(module, "MOST_CLASSES", 1)
            together = bounds(merged)
        assert together["load"] <= apart["load"] * 1.001 + 1
        best = best_step(made)
        assert best is None or max(together.values()) <= best


@pytest.mark.parametrize("seed", range(40))
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


def tight_case(seed):
    """A random case of few ops whose every placement can be tried, on devices that hold about half of what there is to hold."""
    random = Random(seed)
    cluster = random_cluster(random)
    names = [device["name"] for device in cluster["devices"]]
    graph = random_graph(random, random.randint(1, {1: 8, 2: 8, 3: 6, 4: 5}[len(names)]), names)
    for fields in graph["ops"]:
        fields["persistent_bytes"] = random.choice([0, 40, 100, 100])
    held = sum(fields["persistent_bytes"] for fields in graph["ops"])
    for device in cluster["devices"]:
        device["memory_bytes"] = int(held * random.choice([0.4, 0.6, 0.8, 2])) + random.choice([60, 120])
    return Case(graph, cluster, [], "fifo", None)


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


def test_each_bound_is_the_best_one_somewhere():
    named = Counter(bound_name(tight_case(seed).problem()) for seed in range(200))
    named += Counter(bound_name(posed(seed)) for seed in range(20) for posed in (wide_case, zigzag_case))
    assert set(named) == NAMES and min(named.values()) >= 5, named


@pytest.mark.parametrize("part", range(8))
def test_never_above_the_optimum_of_tight_problems(part):
    reached = 0
    for seed in range(part, 320, 8):
        for made in (tight_case(seed).problem(), *((wide_case(seed), zigzag_case(seed)) if seed < 64 else ())):
            best = best_step(made)
            assert best is None or all(bound <= best for bound in bounds(made).values()), (seed, best, bounds(made))
            reached += best == lower_bound(made)
    assert reached >= 5


@pytest.mark.parametrize("seed", range(150))
def test_never_above_a_feasible_step_of_small_problems(seed):
    made = random_case(seed).problem()
    rows = np.array(list(itertools.islice(itertools.product(range(made.num_devices), repeat=made.num_ops), 2000)), dtype=np.int32)
    steps = simulate_devices(made, rows)
    fastest = steps.step_time_ns[feasible(made, steps)].min(initial=2**62)
    assert all(bound <= fastest for bound in bounds(made).values())
