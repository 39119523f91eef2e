"""Stages over a series-parallel network by dynamic programming (GraphPipe, ASPLOS 2025, arXiv 2406.17145, section 5).

A network is decomposed into nodes in series, between which lie branches side by side, each decomposed likewise. What is
neither (a skip over everything, a mask that all layers read) counts as a series in the order of the program. A stage is
a run of a series, with the branches inside it, or some whole branches; other branches have stages of their own. The
programme minimises the slowest stage or transfer. It knows the stages on the longest path behind each: as many
micro-batches, and one more, are in flight, and their activations must fit. In the paper a stage may also have several
devices, and a size of micro-batches of its own; here a stage has one device, and all micro-batches are alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.graph import NONE

MOST_PARTS = 48  # of a series
SMALL = 1e-3  # of all work, has what is no branch by itself


class NodeLoads(NamedTuple):
    """Of each node: work of one micro-batch in ns, bytes held for the step and saved for each micro-batch in flight."""

    work_ns: Float[np.ndarray, " nodes"]
    held: Float[np.ndarray, " nodes"]
    saved: Float[np.ndarray, " nodes"]


class Edges(NamedTuple):
    """From which node to which later one something is sent, and the time of it."""

    src: Int64[np.ndarray, " edges"]
    dst: Int64[np.ndarray, " edges"]
    sent_ns: Float[np.ndarray, " edges"]

    def within(self, nodes: Int64[np.ndarray, " part"]) -> Edges:
        """The edges among some nodes, in ascending order, numbered as these are."""
        inside = np.isin(self.src, nodes) & np.isin(self.dst, nodes)
        return Edges(
            np.searchsorted(nodes, self.src[inside]), np.searchsorted(nodes, self.dst[inside]), self.sent_ns[inside]
        )


Part = tuple[Int64[np.ndarray, " part"], "tuple[Series, ...]"]  # its nodes; its branches, if it has some


@dataclass(frozen=True)
class Series:
    """Parts one after another. `sent_ns[i]` is the time of what is sent from parts before i to those from i on."""

    parts: tuple[Part, ...]
    sent_ns: tuple[float, ...]

    @cached_property
    def nodes(self) -> Int64[np.ndarray, " nodes"]:
        return np.concatenate([nodes for nodes, _ in self.parts])

    @cached_property
    def branches(self) -> bool:
        """Whether anything in it lies side by side."""
        return any(inside for _, inside in self.parts)


class Partition(NamedTuple):
    """Stages as sets of nodes, inputs first; the time of the slowest, and how many the longest path has."""

    slowest_ns: float
    depth: int
    stages: tuple[Int64[np.ndarray, " nodes"], ...]


def decomposed(nodes: Int64[np.ndarray, " nodes"], edges: Edges) -> Series:
    """The series of a connected network, whose nodes are in topological order.

    >>> edges = Edges(np.array([0, 0, 1, 2]), np.array([1, 2, 3, 3]), np.ones(4))
    >>> [(part.tolist(), len(inside)) for part, inside in decomposed(np.arange(4), edges).parts]
    [([0], 0), ([1, 2], 2), ([3], 0)]
    """
    count, inner = len(nodes), edges.within(nodes)
    parts, start = list[Part](), 0
    joints = _joints(count, inner)
    for joint in [*joints, count]:
        between = nodes[start:joint]
        if len(between):
            parts += _between(between, edges, bool(len(joints)))
        parts += [(nodes[joint : joint + 1], ())] if joint < count else []
        start = joint + 1
    ends = np.cumsum([len(part) for part, _ in parts])
    order = np.concatenate([part for part, _ in parts])
    position = np.empty(count, dtype=np.int64)
    position[np.searchsorted(nodes, order)] = np.searchsorted(ends, np.arange(count), side="right")
    src, dst = position[inner.src], position[inner.dst]
    sent = [float(inner.sent_ns[(src < cut) & (dst >= cut)].sum()) for cut in range(len(parts))]
    return Series(tuple(parts), tuple(sent))


def without_ends(work_ns: Float[np.ndarray, " nodes"], edges: Edges) -> Int64[np.ndarray, " nodes"]:
    """The node that each node joins: a small one that reads nothing its first reader, one that nothing reads its input.

    Masks, positions and statistics are no branches. What is not connected at all joins the node before.

    >>> edges = Edges(np.array([0, 1, 2]), np.array([2, 2, 3]), np.ones(3))
    >>> without_ends(np.array([9.0, 0.0, 9.0, 0.0]), edges).tolist()
    [0, 2, 2, 2]
    """
    label, small = np.arange(len(work_ns)), work_ns < SMALL * work_ns.sum()
    src, dst = edges.src, edges.dst
    while True:
        first, last = np.full(len(label), len(label)), np.full(len(label), NONE)
        np.minimum.at(first, src, dst)
        np.maximum.at(last, dst, src)
        alone, series_only = (first == len(label)) & (last == NONE), np.arange(len(label))
        into = np.where(last == NONE, first, last)
        joins = small & ((first == len(label)) != (last == NONE)) & (label == series_only)
        joins[np.clip(into[joins], 0, len(label) - 1)] = False  # one end after another
        if not joins.any():
            # what is alone, and was not joined before, joins its neighbour
            lone = alone & small & (label == series_only) & ~np.isin(series_only, label[label != series_only])
            label[lone] = np.maximum(np.flatnonzero(lone) - 1, 0)
            return _roots(label)
        label[joins] = into[joins]
        src, dst = label[src], label[dst]
        src, dst = src[src != dst], dst[src != dst]


def _roots(label: Int64[np.ndarray, " nodes"]) -> Int64[np.ndarray, " nodes"]:
    while (label[label] != label).any():
        label = label[label]
    return label


def _joints(count: int, inner: Edges) -> list[int]:
    """The nodes that come after all nodes before them, and before all behind them."""
    over = np.zeros(count + 1, dtype=np.int64)
    np.add.at(over, inner.src + 1, 1)
    np.subtract.at(over, inner.dst, 1)
    spanned = np.cumsum(over)[:count] > 0
    sinks = ~np.isin(np.arange(count), inner.src)
    sources = ~np.isin(np.arange(count), inner.dst)
    ended = np.cumsum(sinks) - sinks > 0
    begun = (np.cumsum(sources[::-1])[::-1] - sources) > 0
    return np.flatnonzero(~spanned & ~ended & ~begun).tolist()


def _between(nodes: Int64[np.ndarray, " nodes"], edges: Edges, joined: bool) -> list[Part]:
    """What lies between two joints: branches, a series without the joints, or nodes in their order."""
    branches = _components(nodes, edges)
    if len(branches) > 1:
        return [(nodes, tuple(decomposed(branch, edges) for branch in branches))]
    return list(decomposed(nodes, edges).parts) if joined else [(nodes[at : at + 1], ()) for at in range(len(nodes))]


def _components(nodes: Int64[np.ndarray, " nodes"], edges: Edges) -> list[Int64[np.ndarray, " component"]]:
    """The nodes that edges connect, in the order of their first nodes."""
    inner, label = edges.within(nodes), np.arange(len(nodes))
    while True:
        lowest = label.copy()
        np.minimum.at(lowest, inner.src, label[inner.dst])
        np.minimum.at(lowest, inner.dst, label[inner.src])
        lowest = lowest[lowest]
        if (lowest == label).all():
            return [nodes[label == each] for each in np.unique(label)]
        label = lowest


@dataclass(frozen=True)
class Programme:
    """Finds the best stages of a network on equal devices with `room` bytes each, for so many micro-batches."""

    loads: NodeLoads
    room: float
    micro_batches: int

    def of_series(self, series: Series, devices: int, behind: int) -> list[Partition | None]:
        """The best stages on each number of devices up to `devices`, with so many stages behind the series."""
        runs = self._coarse(series)
        # best[cut][used, depth]: the stages of all parts from the cut on
        best: list[dict[tuple[int, int], Partition]] = [{} for _ in range(len(runs) + 1)]
        best[-1][0, 0] = Partition(0.0, 0, ())
        for cut in range(len(runs) - 1, -1, -1):
            sent_ns = runs[cut][2] if cut else 0.0
            for end in range(cut + 1, len(runs) + 1):
                stage_of = self._stage(np.concatenate([run[0] for run in runs[cut:end]]))
                for (used, depth), rest in best[end].items():
                    if used < devices:
                        _keep(best[cut], used + 1, _before(stage_of(behind + depth), rest, sent_ns))
            if branches := runs[cut][1]:
                for (used, depth), rest in best[cut + 1].items():
                    for number, partition in enumerate(self._of_branches(branches, devices - used, behind + depth)):
                        if partition is not None and number > 1:
                            _keep(best[cut], used + number, _before(partition, rest, sent_ns))
        return [
            min((partition for (used, _), partition in best[0].items() if used == number), key=_slowest, default=None)
            for number in range(devices + 1)
        ]

    def _of_branches(self, branches: tuple[Series, ...], devices: int, behind: int) -> list[Partition | None]:
        """The best stages of branches side by side: neighbours share a stage, or one has several."""
        best: list[dict[tuple[int, int], Partition]] = [{} for _ in range(len(branches) + 1)]
        best[0][0, 0] = Partition(0.0, 0, ())
        alone = [self.of_series(each, devices, behind) if len(each.nodes) > 1 else [] for each in branches]
        for start, _ in enumerate(branches):
            ends = range(start + 1, len(branches) + 1)
            runs = [np.concatenate([each.nodes for each in branches[start:end]]) for end in ends]
            stages = [self._stage(nodes)(behind) for nodes in runs]
            for (used, _), before in best[start].items():
                for end, stage in zip(ends, stages, strict=True) if used < devices else ():
                    _keep(best[end], used + 1, _beside(before, stage))
                for number, partition in enumerate(alone[start]):
                    if partition is not None and number > 1 and used + number <= devices:
                        _keep(best[start + 1], used + number, _beside(before, partition))
        return [
            min((partition for (used, _), partition in best[-1].items() if used == number), key=_slowest, default=None)
            for number in range(devices + 1)
        ]

    def _stage(self, nodes: Int64[np.ndarray, " nodes"]) -> Callable[[int], Partition]:
        """One stage with so many stages behind it; infinitely slow where it does not fit."""
        work_ns, held, saved = (float(load[nodes].sum()) for load in self.loads)

        def partition(behind: int) -> Partition:
            fits = held + min(behind + 1, self.micro_batches) * saved <= self.room
            return Partition(work_ns if fits else np.inf, 1, (nodes,))

        return partition

    def _coarse(self, series: Series) -> list[tuple[Int64[np.ndarray, " nodes"], tuple[Series, ...], float]]:
        """The parts of a series, of which neighbours without branches join where they have little work."""
        work_ns = [float(self.loads.work_ns[nodes].sum()) for nodes, _ in series.parts]
        runs: list[tuple[Int64[np.ndarray, " nodes"], tuple[Series, ...], float]] = []
        part, done = sum(work_ns) / MOST_PARTS, np.inf
        for (nodes, inside), work, sent_ns in zip(series.parts, work_ns, series.sent_ns, strict=True):
            if inside or done + work > part:
                runs.append((nodes, inside, sent_ns))
                done = np.inf if inside else work
            else:
                runs[-1] = (np.concatenate([runs[-1][0], nodes]), (), runs[-1][2])
                done += work
        return runs


def _slowest(partition: Partition) -> tuple[float, int]:
    return partition.slowest_ns, partition.depth


def _before(first: Partition, rest: Partition, sent_ns: float) -> Partition:
    slowest_ns = max(first.slowest_ns, rest.slowest_ns, sent_ns)
    return Partition(slowest_ns, first.depth + rest.depth, first.stages + rest.stages)


def _beside(first: Partition, other: Partition) -> Partition:
    slowest_ns = max(first.slowest_ns, other.slowest_ns)
    return Partition(slowest_ns, max(first.depth, other.depth), first.stages + other.stages)


def _keep(best: dict[tuple[int, int], Partition], used: int, partition: Partition) -> None:
    """Keeps what is faster than what is known for a number of devices and a depth, if its stages fit."""
    key = used, partition.depth
    if partition.slowest_ns < np.inf and (key not in best or partition.slowest_ns < best[key].slowest_ns):
        best[key] = partition
