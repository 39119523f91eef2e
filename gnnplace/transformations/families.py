"""Families of weights: layers with shares of their own, which some replicas lack, and layers with one home.

A replica without a family works on no micro-batch in it and has no copy of its variables, state and update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int64

from gnnplace.graph import CONTROL, NONE, ComputationGraph

ONE_HOME = 0  # the family of what runs once a step in spite of replicas
FamilyShares = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class WeightFamilies:
    """The families of a step: `ONE_HOME`, those with shares of their own, and last the rest, with the step's shares.

    Op i is of family `of[i]`, of which replica `replica[f, m]` works on micro-batch m. `near[i]`: op i is repeated, in
    a layer with one home. A family with few replicas comes before one with more.
    """

    of: Int64[np.ndarray, " ops"]
    near: Bool[np.ndarray, " ops"]
    replica: Int64[np.ndarray, "families micro_batches"]
    shares: Int64[np.ndarray, "families replicas"]

    @cached_property
    def has(self) -> Bool[np.ndarray, "families replicas"]:
        """Whether a replica has a family. The one copy of what has one home counts as that of replica 0."""
        return self.shares > 0

    @cached_property
    def place(self) -> Int64[np.ndarray, "families replicas"]:
        """Which copy of a family's op that runs once a replica reads: its own or, if it has none, the first."""
        return np.where(self.has, np.cumsum(self.has, axis=1) - 1, 0)

    @cached_property
    def replica_at(self) -> Int64[np.ndarray, "families replicas"]:
        """The replicas that have a family, in order, and behind them the others."""
        return np.argsort(~self.has, axis=1, kind="stable")

    def replicas(self, family: int) -> list[int]:
        """The replicas that have a family."""
        return np.flatnonzero(self.has[family]).tolist()

    def micro_batches(self, family: int, replica: int) -> Int64[np.ndarray, " micro_batches"]:
        """The micro-batches of a family on which a replica works, in order."""
        return np.flatnonzero(self.replica[family] == replica)

    def turns(self, family: int) -> tuple[Int64[np.ndarray, " turns"], Int64[np.ndarray, " turns"]]:
        """Each micro-batch of a family that another one follows on its replica, and that one."""
        every = [self.micro_batches(family, replica) for replica in self.replicas(family)]
        return np.concatenate([each[:-1] for each in every]), np.concatenate([each[1:] for each in every])

    def copies(self, once: Bool[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
        """How many copies each op has: one for each replica that has it or, if it is repeated, for each micro-batch."""
        return np.where(once, self.has.sum(axis=1)[self.of], self.replica.shape[1])


def families(
    graph: ComputationGraph,
    once: Bool[np.ndarray, " ops"],
    shares: Sequence[int],
    family_shares: FamilyShares = (),
    one_home: Sequence[str] = (),
) -> WeightFamilies:
    """The families of a graph whose replica r works on `shares[r]` micro-batches; `once[i]`: op i runs once.

    Repeated ops and variables are of the family of their layer. What reads variables, such as casts and updates, is of
    their family, and what serves these alone; of several families, that with the fewest replicas.

    Raises ValueError for a name that matches no layer of a variable, and for names of two families that match a layer.
    """
    number, own_shares = len(shares), tuple(shares)
    others = sorted({each for _, each in family_shares} - {own_shares}, key=lambda each: (number - each.count(0), each))
    every = [(sum(shares), *[0] * (number - 1)), *others, own_shares]
    rest = len(every) - 1
    names = [("one_home", name, ONE_HOME) for name in one_home]
    names += [("family_shares", name, every.index(each, 1)) for name, each in family_shares]
    named = _named(graph, names, rest)
    single = named == ONE_HOME
    replica = np.stack([np.zeros(sum(shares), dtype=np.int64), *(assigned(shares, each) for each in every[1:])])
    of = np.where(once, _of_once(graph, once, named, rest), np.where(single, rest, named))
    return WeightFamilies(of, single & ~once, replica, np.array(every, dtype=np.int64))


def assigned(shares: Sequence[int], family: Sequence[int]) -> Int64[np.ndarray, " micro_batches"]:
    """The replica of each micro-batch in a family with other shares than the step's.

    A micro-batch stays on its replica of the step's shares as long as that has room in the family; those that are left
    over fill, in order, the replicas that have room.

        >>> assigned([1, 1, 3, 3], [0, 0, 4, 4]).tolist()
        [2, 3, 2, 2, 2, 3, 3, 3]
    """
    at, room = np.repeat(np.arange(len(shares)), shares), np.array(family)
    turn = np.arange(len(at)) - (np.cumsum(shares) - shares)[at]  # its number on its replica
    replica = np.where(turn < room[at], at, NONE)
    left = replica == NONE
    replica[left] = np.repeat(np.arange(len(room)), room - np.minimum(room, shares))
    return replica


def _variables(graph: ComputationGraph) -> Bool[np.ndarray, " ops"]:
    return (graph.persistent_bytes > 0) & (np.diff(graph.in_ptr) == 0)


def _named(graph: ComputationGraph, names: Sequence[tuple[str, str, int]], rest: int) -> Int64[np.ndarray, " ops"]:
    """The family of each op's layer, of (option, name, family) triples."""
    held = {graph.layer[op] for op in np.flatnonzero(_variables(graph)).tolist()}
    claims = dict[str, tuple[str, int]]()  # by layer
    for option, name, family in names:
        layers = [each for each in graph.layer.values if fnmatchcase(each, name) or fnmatchcase(each, f"{name}[./]*")]
        if family == ONE_HOME and held.isdisjoint(layers):
            raise ValueError(f"{option}: {name!r} matches the layer of no variable")
        if not layers:
            raise ValueError(f"{option}: {name!r} matches no layer")
        for layer in layers:
            other, its_family = claims.setdefault(layer, (name, family))
            if its_family != family:
                raise ValueError(
                    f"{option}: layer {layer!r} matches {name!r} and {other!r}, of another family; name it once"
                )
    by_layer = [claims[layer][1] if layer in claims else rest for layer in graph.layer.values]
    return np.array([*by_layer, rest])[graph.layer.index]


def _of_once(
    graph: ComputationGraph, once: Bool[np.ndarray, " ops"], named: Int64[np.ndarray, " ops"], rest: int
) -> Int64[np.ndarray, " ops"]:
    """The family of each op that runs once; repeated ops count as those of the rest."""
    variable = _variables(graph)
    of = np.where(variable & once, named, rest)
    root, data = graph.output_op[graph.output_root], graph.edge_output != CONTROL
    for op in graph.order[(once & ~variable)[graph.order]].tolist():  # reads, casts, writes in place
        edges = graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]
        edges = edges[data[edges]]
        read = np.concatenate([graph.edge_src[edges], root[graph.edge_data[edges]]])
        of[op] = of[read].min(initial=rest)
    for op in reversed(graph.order[(once & (of == rest))[graph.order]].tolist()):
        edges = np.arange(graph.out_ptr[op], graph.out_ptr[op + 1])
        readers = graph.edge_dst[edges[data[edges]]]
        of[op] = of[readers].max(initial=ONE_HOME) if len(readers) else rest
    return of
