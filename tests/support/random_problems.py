"""Small random problems and placements with every feature of the execution model: what the two simulators must agree on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

import numpy as np

from experiments.random_documents import random_cluster, random_graph, receive_apart
from gnnplace.costs import roofline
from gnnplace.formats.clusters import cluster_of
from gnnplace.formats.graphs import graph_of
from gnnplace.placement import RULES, Placement
from gnnplace.portfolio.portfolio import placements
from gnnplace.problems import Problem


@dataclass(frozen=True)
class Case:
    """A graph and a cluster as documents, and a placement of one on the other."""

    graph: dict[str, Any]
    cluster: dict[str, Any]
    device: list[int]
    schedule: str
    priority: list[int] | None
    fusion: list[int] | None = None

    def problem(self) -> Problem:
        return roofline.problem(graph_of(self.graph), cluster_of(self.cluster))

    def placement(self) -> Placement:
        priority = None if self.priority is None else np.array(self.priority, dtype=np.int64)
        fusion = None if self.fusion is None else np.array(self.fusion, dtype=np.int32)
        return Placement(np.array(self.device, dtype=np.int32), self.schedule, priority, fusion)


def random_case(seed: int) -> Case:
    """The case of a seed: 1-14 ops on 1-4 devices."""
    random = Random(seed)
    cluster = random_cluster(random)
    num_ops = random.randint(1, 14)
    graph = random_graph(random, num_ops, [device["name"] for device in cluster["devices"]])
    schedule = random.choice([*RULES, "given"])
    spread = random.choice([1, 3, 2**63 - 1])
    priority = [random.randint(-spread, spread) for _ in range(num_ops)] if schedule == "given" else None
    device = random_devices(random, graph, len(cluster["devices"]))
    receive_apart(random, cluster)
    return Case(graph, cluster, device, schedule, priority)


def tiny_problems(seeds: Iterable[int], placements: int, count: int, ops: int = 1, linked: bool = False) -> list[tuple[int, Problem]]:
    """The first `count` problems of these seeds, with their seeds, that have so many legal placements at most and so many ops at least."""
    posed = ((seed, random_case(seed).problem()) for seed in seeds)
    found = list(islice((pair for pair in posed if 0 < _placements(pair[1]) <= placements and _fits(pair[1], ops, linked)), count))
    assert len(found) == count
    return found


def _fits(posed: Problem, ops: int, linked: bool) -> bool:
    return posed.num_ops >= ops and (not linked or len(posed.cluster.links) == posed.num_devices * (posed.num_devices - 1))


def _placements(posed: Problem) -> float:
    """How many legal placements there are: 0 where an op may stand nowhere."""
    try:
        return placements(posed)
    except ValueError:
        return 0.0


def random_devices(random: Random, graph: dict[str, Any], num_devices: int) -> list[int]:
    """Random devices; colocation groups and allowed kinds are mostly, not always, respected."""
    device = [random.randrange(num_devices) for _ in graph["ops"]]
    if random.random() < 0.7:
        leader: dict[str, int] = {}
        for op, fields in enumerate(graph["ops"]):
            if "colocation" in fields:
                device[op] = device[leader.setdefault(fields["colocation"], op)]
    return device
