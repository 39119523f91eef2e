"""Random problems in pairs: a larger one, with twice the memory or an idle device more, has every placement of the smaller one.

They are a third each: synthetic graphs with costs of the corpus on machines that people have; layered graphs whose times, sizes and links
differ by orders of magnitude; and documents with every feature of the execution model, where ties are everywhere. Most memories are short.
None is so small that CP-SAT solves it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random
from typing import Literal, NamedTuple

from experiments.random_documents import KINDS, random_cluster, random_graph, receive_apart
from gnnplace.choices import FAMILIES
from gnnplace.cluster import Cluster, Device, Link
from gnnplace.corpus import manifest
from gnnplace.corpus.synthetic import synthetic
from gnnplace.costs.roofline import problem
from gnnplace.formats.clusters import cluster_of
from gnnplace.formats.graphs import graph_of
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.problems import Problem
from gnnplace.training.run import selection

Growth = Literal["memory doubled", "one device more"]
DONORS = ("nmt-2", "deepfm", "bert-base", "inception-v3-b1", "resnet-50", "gcn")


class Pair(NamedTuple):
    """A problem and a larger one."""

    small: Problem
    large: Problem


def pair(growth: Growth, seed: int) -> Pair:
    """The pair of a seed."""
    random = Random(f"{growth} {seed}")
    graph, cluster = (_realistic, _uneven, _document)[seed % 3](random)
    large = doubled(cluster) if growth == "memory doubled" else one_more(cluster, random)
    return Pair(problem(graph, cluster), problem(graph, large))


def doubled(cluster: Cluster) -> Cluster:
    """The cluster with twice the memory everywhere."""
    return replace(cluster, devices=tuple(replace(device, memory_bytes=2 * device.memory_bytes) for device in cluster.devices))


def one_more(cluster: Cluster, random: Random) -> Cluster:
    """The cluster with a copy of one of its devices, anywhere in the list, whose links are those of the copied one."""
    old = random.choice(cluster.devices)
    new, devices = replace(old, name=f"{old.name.partition(':')[0]}:{cluster.num_devices}"), list(cluster.devices)
    devices.insert(random.randint(0, len(devices)), new)
    leads, comes = ([link for link in cluster.links if getattr(link, end) == old.name] for end in ("src", "dst"))
    links = [_of_copy(link, old.name, new.name) for link in [*leads, *comes]]
    pattern = next(iter(leads), None)
    if pattern is not None:
        between = replace(pattern, channel=None, receive_channel=None)
        links += [replace(between, src=old.name, dst=new.name), replace(between, src=new.name, dst=old.name)]
    return Cluster(cluster.name, tuple(devices), (*cluster.links, *links))


def _of_copy(link: Link, old: str, new: str) -> Link:
    fields = {field: new for field in ("src", "dst", "channel", "receive_channel") if getattr(link, field) == old}
    return replace(link, **fields)


def _realistic(random: Random) -> tuple[ComputationGraph, Cluster]:
    graph = synthetic(
        random.choice(FAMILIES),
        num_ops=random.choice([200, 300, 400]),
        seed=random.randrange(10**6),
        donors=_donors()[random.randrange(5) :],
    )
    cluster = next(found for number in iter(lambda: random.randrange(10**6), None) if (found := selection.drawn(number)).num_devices > 3)
    held, share = int(graph.persistent_bytes.sum() + graph.output_bytes.sum()), random.choice([None, 0.3, 0.6, 1.0])
    if share is None:
        return graph, cluster
    memory = {"cpu": max(1, int(share * held)), "gpu": max(1, int(share * held / len(cluster.accelerators)))}
    return graph, replace(cluster, devices=tuple(replace(device, memory_bytes=memory[device.kind]) for device in cluster.devices))


@cache
def _donors() -> list[ComputationGraph]:
    return [manifest.graph(name) for name in DONORS]


def _uneven(random: Random) -> tuple[ComputationGraph, Cluster]:
    count, names = 201, [f"{random.choice(KINDS)}:{index}" for index in range(random.randint(3, 6))]
    slowness, width, inputs = {kind: 10 ** random.uniform(0, 2.5) for kind in KINDS}, random.choice([3, 8, 20]), random.choice([1.2, 2, 4])
    ops, edges = [], []
    for number in range(count):
        work = 10 ** random.uniform(2, 5)
        held = {"persistent_bytes": int(10 ** random.uniform(2, 6))} if random.random() < 0.4 else {}
        times = {kind: int(work * slow * random.uniform(0.7, 1.4)) for kind, slow in slowness.items()}
        ops.append(Op(f"op{number}", "MatMul", (Output(int(10 ** random.uniform(1, 6))),), time_ns=times, **held))
        before = range(max(0, number - 3 * width), number - number % width)
        sources = random.choices(before, k=max(1, int(random.expovariate(1 / inputs)))) if before else []
        edges += [(source, random.choice([0, 0, 0, -1]), number) for source in sorted(set(sources))]
    total = sum(op.persistent_bytes + op.outputs[0].bytes for op in ops)
    fast = random.choice([9, None])
    devices = [Device(name, name[:3], int(total * random.choice([0.1, 0.3, 0.6, 1, 3])), 10**12, 10**12) for name in names]
    links = [
        Link(a, b, int(10 ** (fast or random.uniform(5, 11))), random.choice([0, 1000]), random.choice([0, 5000]))
        for a in names
        for b in names
        if a != b
    ]
    return ComputationGraph.from_ops("uneven", ops, edges), Cluster("uneven", tuple(devices), tuple(links))


def _document(random: Random) -> tuple[ComputationGraph, Cluster]:
    cluster = next(found for found in iter(lambda: random_cluster(random), None) if len(found["devices"]) > 2)
    graph = random_graph(random, 201, [device["name"] for device in cluster["devices"]])
    for fields in graph["ops"]:
        fields.pop("allowed", None)
        if "time_ns" in fields:
            fields["time_ns"] = {kind: random.choice([0, 1, 2, 3, 5, 8]) for kind in KINDS} | fields["time_ns"]
    receive_apart(random, cluster)
    larger = random.choice([3, 10, 30])
    for device in cluster["devices"]:
        device["memory_bytes"] *= larger
    return graph_of(graph), cluster_of(cluster)
