"""The problem that results from a fusion: each group of fused ops is one op (docs/execution-model.md#fusion).

Placements of the original problem translate to the fused problem and back.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.costs.fused_ops import FusedGroups, fused_ns, groups, leaving, moved_bytes
from gnnplace.fusion.rules import leaders, refusal
from gnnplace.graph import MAX_BYTES, MAX_FLOPS, NONE, Categorical, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem

MOST_KEPT = 32  # fusions of a problem that are kept


@dataclass(frozen=True, eq=False)
class Fused:
    """A fused problem.

    `op[i]` is the fused op of op i of the original problem, `first[g]` the first op of fused op g, and `output[k]` the
    original number of output k.
    """

    problem: Problem
    op: Int32[np.ndarray, " ops"]
    first: Int64[np.ndarray, " fused"]
    output: Int64[np.ndarray, " outputs"]

    def contracted(self, placement: Placement) -> Placement:
        """The placement of fused ops. Each has the device of its first op and the highest priority of its ops."""
        priority = None
        if placement.priority is not None:
            priority = np.full(len(self.first), np.iinfo(np.int64).min)
            np.maximum.at(priority, self.op, placement.priority)
        return Placement(placement.device[self.first], placement.schedule, priority)

    def expanded(self, placement: Placement) -> Placement:
        """The placement of all ops that a placement of fused ops means."""
        priority = None if placement.priority is None else placement.priority[self.op]
        return Placement(placement.device[self.op], placement.schedule, priority, self.first[self.op].astype(np.int32))


_kept: WeakKeyDictionary[Problem, OrderedDict[bytes, Fused | str]] = WeakKeyDictionary()
_lock = Lock()  # threads share `_kept`


def fused(problem: Problem, fusion: Int32[np.ndarray, " ops"]) -> Fused:
    """The fused problem of a fusion. The last `MOST_KEPT` of each problem are kept.

    Raises ValueError if the rules do not allow the fusion.
    """
    outcome = fused_or_refusal(problem, fusion)
    if isinstance(outcome, str):
        raise ValueError(outcome)
    return outcome


def fused_or_refusal(problem: Problem, fusion: Int32[np.ndarray, " ops"]) -> Fused | str:
    """The fused problem of a fusion, or the reason why the rules do not allow it."""
    leader = leaders(fusion)
    key = leader.tobytes()
    with _lock:
        kept = _kept.setdefault(problem, OrderedDict())
        if key in kept:
            kept.move_to_end(key)
            return kept[key]
    outcome = refusal(problem.graph, leader) or _fused(problem, groups(leader))
    with _lock:
        kept[key] = outcome
        if len(kept) > MOST_KEPT:
            kept.popitem(last=False)
    return outcome


def _fused(problem: Problem, groups: FusedGroups) -> Fused:
    graph, first = problem.graph, np.unique(groups.group, return_index=True)[1]
    kept = _by_group(graph, groups, leaving(graph, groups))
    moved = moved_bytes(graph, groups)
    time_ns, contended_ns = fused_ns(problem, groups, moved)
    allowed = np.ones(time_ns.shape, dtype=bool)
    np.logical_and.at(allowed, groups.group, problem.allowed)
    several = groups.fused[first]
    times = np.where(several[:, None] & allowed, time_ns, NONE)
    contracted = ComputationGraph(
        name=graph.name,
        op_names=tuple(graph.op_names[op] for op in first.tolist()),
        kind=_rows(graph.kind, first),
        canonical_kind=_rows(graph.canonical_kind, first),
        phase=_rows(graph.phase, first),
        layer=_rows(graph.layer, first),
        colocation=_colocation(graph, groups),
        allowed=_allowed(graph, first, several, allowed),
        flops=np.minimum(_sums(graph.flops, groups), MAX_FLOPS),
        bytes_accessed=np.where(several, np.minimum(_sums(moved, groups), MAX_BYTES), graph.bytes_accessed[first]),
        persistent_bytes=_sums(graph.persistent_bytes, groups),
        workspace_bytes=_most(graph.workspace_bytes, groups),
        kernel=_most(graph.kernel.astype(np.int64), groups) > 0,
        block=graph.block[first],
        time_step=graph.time_step[first],
        given_keys=_given_keys(problem),
        given_time_ns=_given_times(problem, first, several, times),
        **_outputs(graph, groups, kept),
        **_edges(graph, groups, kept),
    )
    return Fused(
        Problem(contracted, problem.cluster, time_ns, contended_ns), groups.group.astype(np.int32), first, kept
    )


def _by_group(
    graph: ComputationGraph, groups: FusedGroups, leaves: Bool[np.ndarray, " outputs"]
) -> Int64[np.ndarray, " kept"]:
    """The outputs that leave their group, sorted by group and then by number."""
    kept = np.flatnonzero(leaves)
    return kept[np.argsort(groups.group[graph.output_op[kept]], kind="stable")]


def _sums(values: Int64[np.ndarray, " ops"], groups: FusedGroups) -> Int64[np.ndarray, " groups"]:
    total = np.zeros(groups.number, dtype=np.int64)
    np.add.at(total, groups.group, values)
    return total


def _most(values: Int64[np.ndarray, " ops"], groups: FusedGroups) -> Int64[np.ndarray, " groups"]:
    most = np.zeros(groups.number, dtype=np.int64)
    np.maximum.at(most, groups.group, values)
    return most


def _rows(column: Categorical, rows: Int64[np.ndarray, " rows"]) -> Categorical:
    return Categorical(column.values, column.index[rows])


def _colocation(graph: ComputationGraph, groups: FusedGroups) -> Categorical:
    """The colocation group of each fused op. Groups that share a fused op are merged into the first of them."""
    members = np.flatnonzero(graph.colocation.index != NONE)
    fused_op, label = groups.group[members], graph.colocation.index[members]
    merged = np.arange(len(graph.colocation.values))  # the group into which each is merged
    while True:
        least = np.full(groups.number, len(merged))
        np.minimum.at(least, fused_op, merged[label])
        further = merged.copy()
        np.minimum.at(further, label, least[fused_op])
        if np.array_equal(further, merged):
            break
        merged = further
    index = np.full(groups.number, NONE, dtype=np.int32)
    index[fused_op] = merged[label]
    return Categorical(graph.colocation.values, index)


def _allowed(
    graph: ComputationGraph,
    first: Int64[np.ndarray, " groups"],
    several: Bool[np.ndarray, " groups"],
    allowed: Bool[np.ndarray, "groups devices"],
) -> Categorical:
    """The device kinds that each fused op allows.

    A single op keeps its kinds. For a group of several, the times say which devices are allowed, so it has no list; if
    no device is allowed, its list is empty.
    """
    nowhere = len(graph.allowed.values)
    index = np.where(several, np.where(allowed.any(axis=1), NONE, nowhere), graph.allowed.index[first]).astype(np.int32)
    return Categorical((*graph.allowed.values, ""), index)


def _given_keys(problem: Problem) -> tuple[str, ...]:
    """The keys of the fused ops' given times: those of the graph, and the names of all devices."""
    return tuple(dict.fromkeys((*problem.graph.given_keys, *problem.cluster.device_names)))


def _given_times(
    problem: Problem,
    first: Int64[np.ndarray, " groups"],
    several: Bool[np.ndarray, " groups"],
    times: Int64[np.ndarray, "groups devices"],
) -> Int64[np.ndarray, "groups keys"]:
    """The given times. A single op keeps its own; a group of several has `times`, one for each device."""
    column = {key: number for number, key in enumerate(_given_keys(problem))}
    given = np.full((len(first), len(column)), NONE, dtype=np.int64)
    given[:, : len(problem.graph.given_keys)] = problem.graph.given_time_ns[first]
    given[several] = NONE
    devices = np.array([column[name] for name in problem.cluster.device_names])
    given[np.ix_(several, devices)] = times[several]
    return given


def _outputs(graph: ComputationGraph, groups: FusedGroups, kept: Int64[np.ndarray, " kept"]) -> dict[str, Any]:
    """The columns of the outputs that leave. An alias of an output of the same group has its own buffer."""
    group_of = groups.group[graph.output_op]
    alias = graph.output_alias.copy()
    while True:  # follow aliases until they name an output of another group
        inside = np.flatnonzero(alias != NONE)
        inside = inside[group_of[alias[inside]] == group_of[inside]]
        if not len(inside):
            break
        alias[inside] = graph.output_alias[alias[inside]]
    number = np.full(len(alias) + 1, NONE, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    rank = np.maximum(graph.output_rank, 0)
    dims = np.repeat(np.cumsum(rank)[kept] - rank[kept], rank[kept]) + _counting(rank[kept])
    return {
        "output_ptr": np.searchsorted(group_of[kept], np.arange(groups.number + 1)).astype(np.int64),
        "output_bytes": graph.output_bytes[kept],
        "output_dtype": _rows(graph.output_dtype, kept),
        "output_rank": graph.output_rank[kept],
        "output_dims": graph.output_dims[dims],
        "output_alias": number[alias[kept]],
        "output_is_result": graph.output_is_result[kept],
    }


def _counting(lengths: Int32[np.ndarray, " rows"]) -> Int64[np.ndarray, " total"]:
    """For each row the numbers 0, 1, ... up to its length, joined."""
    return np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _edges(graph: ComputationGraph, groups: FusedGroups, kept: Int64[np.ndarray, " kept"]) -> dict[str, Any]:
    """The edges between groups: one for each output and each group that reads it, one control edge for each pair."""
    src, dst = groups.group[graph.edge_src], groups.group[graph.edge_dst]
    output_ptr = np.searchsorted(groups.group[graph.output_op[kept]], np.arange(groups.number + 1))
    # the number of each output within its group; `NONE` for control
    number = np.full(len(graph.output_bytes) + 1, NONE, dtype=np.int64)
    number[kept] = np.arange(len(kept)) - output_ptr[groups.group[graph.output_op[kept]]]
    # each group has a slot for control and one for each output
    slot = output_ptr[src] + src + 1 + number[graph.edge_data]
    key = np.sort((slot * groups.number + dst)[src != dst])
    key = key[np.diff(key, prepend=-1) > 0]
    slot, dst = key // groups.number, key % groups.number
    starts = output_ptr[:-1] + np.arange(groups.number)
    src = np.searchsorted(starts, slot, side="right") - 1
    return {
        "edge_src": src.astype(np.int32),
        "edge_output": (slot - starts[src] - 1).astype(np.int32),
        "edge_dst": dst.astype(np.int32),
    }
