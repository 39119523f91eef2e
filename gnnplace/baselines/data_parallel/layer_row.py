"""The row of layers of one micro-batch: what they work and send, and which of them may have one home."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int64

from gnnplace.baselines.data_parallel.family_names import paths
from gnnplace.baselines.data_parallel.forms import copies_of
from gnnplace.baselines.data_parallel.hybrid import experts, tables
from gnnplace.baselines.rings import ring
from gnnplace.graph import CONTROL, NONE, ComputationGraph, Copies
from gnnplace.problems import Problem
from gnnplace.transformations.repetition import SCALAR_BYTES
from gnnplace.transformations.sparse_updates import sparse_updates

CUTS = 24  # at most, of a row


@dataclass(frozen=True, eq=False)
class RowOfLayers:
    """The layers of one micro-batch by their last forward ops, on the accelerators `devices`.

    `work_ns` is the time of one micro-batch, `update_ns` that of the update on each replica. Layer `src[s]` sends
    `sent_bytes[s]` to `dst[s]`, in the forward or in the backward pass, and, where these `gather`, to each replica of
    it: rows. A ring sums `summed_bytes`. Each set of `single` may have one home: a table whose gradients are rows, an
    expert.
    """

    devices: Int64[np.ndarray, " devices"]
    names: tuple[str, ...]
    work_ns: Float[np.ndarray, "layers devices"]
    update_ns: Float[np.ndarray, "layers devices"]
    summed_bytes: Float[np.ndarray, " layers"]
    src: Int64[np.ndarray, " sends"]
    dst: Int64[np.ndarray, " sends"]
    sent_bytes: Float[np.ndarray, " sends"]
    gather: Bool[np.ndarray, " sends"]
    single: tuple[Int64[np.ndarray, " layers_of_one"], ...]
    allowed: Bool[np.ndarray, " cuts"]

    @cached_property
    def others(self) -> Int64[np.ndarray, " others"]:
        """The layers that are in no set of `single`, in their order."""
        return np.setdiff1d(np.arange(len(self.names)), np.concatenate([np.zeros(0, dtype=np.int64), *self.single]))

    def loads(
        self, candidates: Int64[np.ndarray, "candidates layers devices"]
    ) -> Float[np.ndarray, "candidates devices"]:
        """How long each device works, its share of each layer given."""
        work, update = (
            np.einsum("cld,ld->cd", each, ns)
            for each, ns in ((candidates, self.work_ns), (candidates > 0, self.update_ns))
        )
        return work + update

    def sent_by(self, layers: Int64[np.ndarray, " some"]) -> float:
        """The bytes that some layers send to others for a micro-batch, or get from them, whichever are more."""
        here, there = np.isin(self.src, layers), np.isin(self.dst, layers)
        return float(max(self.sent_bytes[here & ~there].sum(), self.sent_bytes[there & ~here].sum()))

    @cached_property
    def crossing_bytes(self) -> Float[np.ndarray, " cuts"]:
        """What crosses each cut, both ways, between layers that have no home; cut c is before layer c."""
        crossing = np.zeros(len(self.names) + 1)
        inside = np.isin(self.src, self.others) & np.isin(self.dst, self.others) & ~self.gather
        np.add.at(crossing, np.minimum(self.src, self.dst)[inside] + 1, self.sent_bytes[inside])
        np.subtract.at(crossing, np.maximum(self.src, self.dst)[inside] + 1, self.sent_bytes[inside])
        return np.cumsum(crossing)

    def cuts(self) -> list[int]:
        """The ends of runs of layers: where the least is sent, about equally far from each other in work."""
        work = np.cumsum(self.work_ns.min(axis=1))
        place = np.minimum(CUTS * work[:-1] / max(work[-1], 1.0), CUTS - 1).astype(
            np.int64
        )  # of the cut behind a layer
        near = [1 + np.flatnonzero((place == each) & self.allowed[1:-1]) for each in np.unique(place)]
        return [0, *(int(each[np.argmin(self.crossing_bytes[each])]) for each in near if len(each)), len(self.names)]


def layer_row(problem: Problem) -> RowOfLayers:
    """The row of a step of several micro-batches, on as many devices as these at most, the fastest."""
    copies, devices = copies_of(problem.graph), problem.cluster.accelerators
    speed = np.argsort(problem.time_ns[:, devices].sum(axis=0), kind="stable")
    one, devices = copies.original, ring(problem.cluster, devices[np.sort(speed[: copies.micro_batches])])
    names, layer = _in_order(one)
    once = np.ones(one.num_ops, dtype=bool)
    once[copies.source[~copies.added & (copies.micro_batch != NONE)]] = False
    by_rows = sparse_updates(one, once).by_rows
    return RowOfLayers(
        devices, names, *_times(problem, names, devices), _summed(one, layer, once, by_rows),
        *_sends(one, layer, once, by_rows), tuple(_single(one, names, by_rows)), _allowed(copies, layer, len(names)),
    )  # fmt: skip


def _times(
    problem: Problem, names: tuple[str, ...], devices: Int64[np.ndarray, " devices"]
) -> tuple[Float[np.ndarray, "layers devices"], Float[np.ndarray, "layers devices"]]:
    """What each layer works for a micro-batch, with sums of gradients, and once a step. Rows are of what reads them."""
    graph, copies = problem.graph, copies_of(problem.graph)
    number = {name: place for place, name in enumerate(names)}
    layer = np.array([*(number.get(name, NONE) for name in graph.layer.values), NONE])[graph.layer.index]
    rows = np.flatnonzero((copies.added & graph.kind.among(["concat"]))[graph.edge_src])
    layer[graph.edge_src[rows]] = layer[graph.edge_dst[rows]]
    ns = problem.time_ns[:, devices] * graph.kernel[:, None]
    again = (copies.micro_batch != NONE) | (copies.added & graph.kind.among(["sum"]))
    work, update = (np.zeros((len(names) + 1, ns.shape[1])) for _ in range(2))
    np.add.at(work, layer, ns * again[:, None] / copies.micro_batches)
    np.add.at(update, layer, ns * ~again[:, None])
    return work[:-1], update[:-1]


def _in_order(graph: ComputationGraph) -> tuple[tuple[str, ...], Int64[np.ndarray, " ops"]]:
    """The layers that compute in the forward pass, by their last forward ops, and the layer of each op, or `NONE`."""
    last = np.full(len(graph.layer.values) + 1, NONE, dtype=np.int64)
    np.maximum.at(last, graph.layer.index, np.where(graph.phase.among(["forward"]) & graph.kernel, graph.level, NONE))
    order = np.argsort(last[:-1], kind="stable")
    order = order[last[order] != NONE]
    number = np.full(len(last), NONE, dtype=np.int64)
    number[order] = np.arange(len(order))
    return tuple(graph.layer.values[layer] for layer in order.tolist()), number[graph.layer.index]


def _sends(
    graph: ComputationGraph,
    layer: Int64[np.ndarray, " ops"],
    once: Bool[np.ndarray, " ops"],
    by_rows: Bool[np.ndarray, " ops"],
) -> tuple[
    Int64[np.ndarray, " sends"], Int64[np.ndarray, " sends"], Float[np.ndarray, " sends"], Bool[np.ndarray, " sends"]
]:
    """What a micro-batch sends from one layer to another. A tensor goes to a layer once; rows also go to the same."""
    src, dst, rows = layer[graph.edge_src], layer[graph.edge_dst], by_rows[graph.edge_dst]
    sent = (src != NONE) & (dst != NONE) & (graph.edge_output != CONTROL) & ~once[graph.edge_src]
    edges = np.flatnonzero(sent & (rows | (src != dst) & ~once[graph.edge_dst]))
    sends = np.unique(np.stack([src[edges], dst[edges], rows[edges], graph.edge_data[edges]]), axis=1)
    pairs, place = np.unique(sends[:3], axis=1, return_inverse=True)
    return (
        pairs[0],
        pairs[1],
        np.bincount(place.ravel(), graph.output_bytes[sends[3]], pairs.shape[1]) * 1.0,
        pairs[2] > 0,
    )


def _summed(
    graph: ComputationGraph,
    layer: Int64[np.ndarray, " ops"],
    once: Bool[np.ndarray, " ops"],
    by_rows: Bool[np.ndarray, " ops"],
) -> Float[np.ndarray, " layers"]:
    """The bytes of each layer's gradients, except those by rows."""
    leaves = ~once[graph.edge_src] & once[graph.edge_dst] & ~by_rows[graph.edge_dst]
    outputs = np.unique(graph.edge_data[leaves & (graph.edge_bytes > SCALAR_BYTES)])
    owner = layer[graph.output_op[outputs]]
    return np.bincount(owner[owner != NONE], graph.output_bytes[outputs][owner != NONE], int(layer.max()) + 1) * 1.0


def _single(
    graph: ComputationGraph, names: tuple[str, ...], by_rows: Bool[np.ndarray, " ops"]
) -> list[Int64[np.ndarray, " layers_of_one"]]:
    sparse = {graph.layer[op] for op in np.flatnonzero(by_rows).tolist()}
    tops = [*(table for table in tables(graph) if table in sparse), *experts(graph)]
    of_one = defaultdict[str, list[int]](list)
    for number, name in enumerate(names):
        if (top := next((around for around in paths(name) if around in tops), None)) is not None:
            of_one[top].append(number)
    return [np.array(numbers, dtype=np.int64) for numbers in of_one.values()]


def _allowed(copies: Copies, layer: Int64[np.ndarray, " ops"], count: int) -> Bool[np.ndarray, " cuts"]:
    """Whether each cut divides nothing that stays whole. Inputs count as nothing: they may lie anywhere."""
    divided = np.zeros(count + 1, dtype=np.int64)
    if copies.part is not None:
        whole = (copies.part != NONE) & (layer != NONE) & ~copies.original.canonical_kind.among(["input"])
        first, last = (np.full(int(copies.part.max()) + 1, each) for each in (count, NONE))
        np.minimum.at(first, copies.part[whole], layer[whole])
        np.maximum.at(last, copies.part[whole], layer[whole])
        np.add.at(divided, first[last > first] + 1, 1)
        np.subtract.at(divided, last[last > first] + 1, 1)
    return np.cumsum(divided) == 0
