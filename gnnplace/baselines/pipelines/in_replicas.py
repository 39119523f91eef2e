"""Pipelines with replicas: the same pipeline on devices of its own for each replica, gradients summed round rings.

So Megatron-LM combines pipelines with data parallelism (Narayanan et al., SC 2021, section 3). Devices form one group
for each replica, as many in each, in the order of a ring of fast links: runs of it, whose stages are neighbours, or in
turns, so that the copies of a stage are. A replica's pipeline is planned on the first group.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.baselines.data_parallel.forms import copies_of
from gnnplace.baselines.pipelines.orders import ranks
from gnnplace.baselines.pipelines.schedules import Plan
from gnnplace.baselines.rings import ring
from gnnplace.baselines.single import fastest
from gnnplace.cluster import Cluster
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.schedules.moments import raised
from gnnplace.step_forms import reformed
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.units.units import colocation_closure


def in_replicas(problem: Problem, evaluate: Evaluator, *, plan: Plan) -> Placement:
    """The fastest placement of a pipeline in each replica. Its ops keep the pipeline's order, or only prefer it."""
    copies = copies_of(problem.graph)
    if copies.replicas == 1:
        return plan(problem, evaluate)
    proposals = []
    for groups in _groups(problem.cluster, copies.replicas):
        of_one = _of_one_replica(problem, groups[0])
        proposals += _in_each(problem, of_one, plan(of_one, evaluate), groups)
    return fastest(problem, proposals, evaluate)


def _groups(cluster: Cluster, replicas: int) -> list[Int64[np.ndarray, "replicas stages"]]:
    """The accelerators of each replica's stages. Where there are fewer than replicas, these share them."""
    devices = ring(cluster, cluster.accelerators)
    stages = max(1, len(devices) // replicas)
    devices = np.resize(devices, replicas * stages)
    both = devices.reshape(replicas, stages), devices.reshape(stages, replicas).T
    return list({each.tobytes(): each for each in both}.values())


def _of_one_replica(problem: Problem, devices: Int64[np.ndarray, " stages"]) -> Problem:
    """The step of one replica's micro-batches, on these accelerators and all CPUs."""
    copies, cluster = copies_of(problem.graph), problem.cluster
    alone = reformed(problem, Parallelism(copies.shares[0], shared=copies.shared).of(copies.original))
    kept = np.setdiff1d(np.arange(cluster.num_devices), np.setdiff1d(cluster.accelerators, devices))
    names = {cluster.device_names[device] for device in kept}
    part = replace(
        cluster,
        devices=tuple(cluster.devices[device] for device in kept),
        links=tuple(link for link in cluster.links if {link.src, link.dst} <= names),
    )
    slower = None if alone.contended_ns is None else alone.contended_ns[:, kept]
    return Problem(alone.graph, part, alone.time_ns[:, kept], slower)


def _in_each(
    problem: Problem, of_one: Problem, placement: Placement, groups: Int64[np.ndarray, "replicas stages"]
) -> list[Placement]:
    """The placement of one replica's ops for those of each replica, on the devices of its group."""
    graph, names = problem.graph, problem.cluster.device_names
    small, copies = copies_of(of_one.graph), copies_of(graph)
    number = {name: device for device, name in enumerate(names)}
    device_of = np.tile([number[name] for name in of_one.cluster.device_names], (copies.replicas, 1))
    for place, device in enumerate(groups[0]):
        device_of[:, of_one.cluster.device_names.index(names[device])] = groups[:, place]
    first = np.empty(small.original.num_ops, dtype=np.int64)
    first[small.source[::-1]] = placement.device[::-1]
    device = device_of[copies.replica, first[copies.source]][colocation_closure(graph)].astype(np.int32)
    priority = -ranks(graph, raised(graph, _moments(graph, of_one.graph, placement)))
    return [Placement(device, "in-order", priority), Placement(device, "given", priority)]


def _moments(graph: ComputationGraph, of_one: ComputationGraph, placement: Placement) -> Int64[np.ndarray, " ops"]:
    """The place of each op in the order of a replica's pipeline; what is added comes with what it reads."""
    small, copies = copies_of(of_one), copies_of(graph)
    place = np.zeros((small.original.num_ops, small.micro_batches), dtype=np.int64)
    assert placement.priority is not None
    ours = ~small.added
    place[small.source[ours], _local(small.micro_batch, small.shares[0])[ours]] = -np.asarray(placement.priority)[ours]
    return np.where(copies.added, 0, place[copies.source, _local(copies.micro_batch, copies.shares[0])])


def _local(micro_batch: Int32[np.ndarray, " ops"], share: int) -> Int32[np.ndarray, " ops"]:
    """The number of each op's micro-batch within its replica; 0 for what runs once."""
    return np.where(micro_batch == NONE, 0, micro_batch % share)
