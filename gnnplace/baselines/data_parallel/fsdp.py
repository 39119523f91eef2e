"""Fully sharded data parallelism (Rajbhandari et al., ZeRO, SC 2020; Zhao et al., FSDP, VLDB 2023).

Weights, gradients and optimizer state are spread over the devices by their bytes. A weight is sent to each device that
reads it, and kept for the step or fetched for each use; gradients are sent to the weight's home. Whole weights are
spread, not slices of each, since an op is not split here. Where devices are those of several nodes, each node may have
all weights: hybrid sharding (FSDP, section 3.2.2), with rings across nodes.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int32, Int64

from gnnplace.baselines.data_parallel.forms import best_of, copies_of, replicated, sharded
from gnnplace.baselines.data_parallel.shares import Shares, shares
from gnnplace.baselines.data_parallel.turns import turns
from gnnplace.choices import CopiesName
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Proposal
from gnnplace.units.units import colocation_closure, units

KEPT: tuple[CopiesName, ...] = ("free", "fetched")  # a weight is kept for the step, or fetched for each use


def fsdp(problem: Problem, evaluate: Evaluator) -> Proposal:
    """The best of shards on all accelerators, on the fastest half, and so on, with weights kept or fetched, and of
    hybrid ones, with weights kept.
    """
    proposals = []
    for form in (sharded(problem, placed) for placed in KEPT):
        for share in shares(problem):
            placement = Placement(_devices(form, share), "given", turns(form.graph, share))
            proposals.append(Proposal(form, placement))
    proposals += [hybrid_shards(problem, share) for share in shares(problem) if share.ring_size]
    return best_of(proposals, evaluate)


def hybrid_shards(problem: Problem, share: Shares) -> Proposal:
    """A replica for each node of the shares, spread over its devices."""
    nodes = share.number.reshape(-1, share.ring_size).sum(axis=1)
    form = replicated(problem, Shares(share.devices[:: share.ring_size], nodes), "free")
    return Proposal(form, Placement(_devices(form, share), "given", turns(form.graph, share)))


def _devices(form: Problem, share: Shares) -> Int32[np.ndarray, " ops"]:
    """Copies of a micro-batch stand on its device; what runs once at the homes of the weights that it reads."""
    graph, copies, unit = form.graph, copies_of(form.graph), units(form.graph, "weights")
    held = np.bincount(unit.unit, weights=graph.persistent_bytes, minlength=unit.num_units)
    replica, size = np.zeros(unit.num_units, dtype=np.int64), len(share.devices) // copies.replicas
    np.maximum.at(replica, unit.unit, copies.replica)
    homes = np.full(unit.num_units, NONE)
    for node in range(copies.replicas):
        some = np.flatnonzero((replica == node) & (held > 0))
        homes[some] = node * size + _homes(held[some], form.cluster.memory_bytes[share.devices[node * size :][:size]])
    home = homes[unit.unit]
    at_home = (copies.micro_batch == NONE) | (copies.added & (home != NONE))
    device = np.where(at_home, home, np.repeat(np.arange(len(share.devices)), share.number)[copies.micro_batch])
    for op in graph.order[device[graph.order] == NONE].tolist():  # derived of weights, or of constants alone
        inputs = device[graph.edge_src[graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]]]
        node = int(copies.replica[op])
        device[op] = next((at for at in inputs.tolist() if at != NONE and at // size == node), node * size)
    return share.devices[device[_first(graph)]].astype(np.int32)


def _first(graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    """The op that each op follows: the first copy of a micro-batch in its colocation group, or the group's first op."""
    copies, closure, first = copies_of(graph), colocation_closure(graph), np.full(graph.num_ops, graph.num_ops)
    of_batch = np.flatnonzero((copies.micro_batch != NONE) & ~copies.added)
    np.minimum.at(first, closure[of_batch], of_batch)
    return np.where(first < graph.num_ops, first, closure)[closure]


def _homes(held: Float[np.ndarray, " units"], memory: Int64[np.ndarray, " replicas"]) -> Int64[np.ndarray, " units"]:
    """The replica that holds each unit, the largest first, so that memories are evenly full; `NONE` for 0 bytes."""
    home, load = np.full(len(held), NONE), np.zeros(len(memory))
    for unit in np.argsort(-held, kind="stable")[: np.count_nonzero(held)].tolist():
        home[unit] = int(np.argmin((load + held[unit]) / memory))
        load[home[unit]] += held[unit]
    return home
