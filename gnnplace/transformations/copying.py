"""Copies the ops of one micro-batch for the step of several, on one or several replicas: edges, aliases and groups.

`gathering` adds what sums, divides or concatenates the tensors of these copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int64, Integer

from gnnplace.choices import AT_HOME, FREELY, CopiesName
from gnnplace.graph import (
    CONTROL,
    MAX_BYTES,
    MAX_EDGES,
    MAX_FLOPS,
    MAX_OPS,
    MAX_TIME_NS,
    NONE,
    Categorical,
    ComputationGraph,
    Copies,
    Op,
)  # fmt: skip
from gnnplace.transformations.assembly import Assembly
from gnnplace.transformations.families import ONE_HOME, FamilyShares, families
from gnnplace.transformations.repetition import BACKWARD, SCALAR_BYTES, rows, running_order, runs_once
from gnnplace.transformations.sparse_updates import sparse_updates
from gnnplace.transformations.state import with_state_apart

MOST = {
    "flops": MAX_FLOPS, "bytes_accessed": MAX_BYTES, "workspace_bytes": MAX_BYTES, "given_time_ns": MAX_TIME_NS,
    "output_bytes": MAX_BYTES, "output_dims": MAX_BYTES,
}  # fmt: skip
WHOLE = -2  # the group of a replica


class Copying:
    """The copies of a step in which replica r works on `shares[r]` micro-batches.

    `graph` is that of one micro-batch with state apart. Op i of it has its copies from op `first[i]` of the step on,
    one for each micro-batch if it is `repeated[i]`.
    """

    def __init__(
        self,
        original: ComputationGraph,
        shares: Sequence[int],
        placed: CopiesName,
        shared: Collection[str],
        one_home: Sequence[str] = (),
        family_shares: FamilyShares = (),
        ring_size: int = 0,
    ) -> None:
        self._original, self._shares, self.placed, self.ring_size = original, tuple(shares), placed, ring_size
        self._shared, self._one_home, self._family_shares = tuple(shared), tuple(one_home), tuple(family_shares)
        self.micro_batches, self.replicas = sum(shares), len(shares)
        if self.micro_batches > MAX_OPS:
            raise ValueError(
                f"micro_batches: {self.micro_batches} are more than the {MAX_OPS:,} ops that a graph may have"
            )
        self.graph, self._origin = with_state_apart(original)
        held = np.bincount(self._origin, minlength=self.graph.num_ops) > 1
        self.repeated = ~runs_once(self.graph, shared, held)
        self.by_rows, self._grown = sparse_updates(self.graph, ~self.repeated)
        self.families = families(self.graph, ~self.repeated, shares, family_shares, one_home)
        self.family = self.families.of
        self._at_one_home = ~self.repeated & (self.family == ONE_HOME)
        self._check_size()
        times = self._times
        self.first = np.cumsum(times) - times  # the first copy of each op
        self._source = np.repeat(np.arange(len(times)), times)
        place = np.arange(len(self._source)) - self.first[self._source]
        again, family = self.repeated[self._source], self.family[self._source]
        self._micro_batch = np.where(again, place, NONE)
        of_micro_batch = self.families.replica[family, np.where(again, place, 0)]
        self._replica = np.where(again, of_micro_batch, self.families.replica_at[family, np.where(again, 0, place)])
        self.assembly = Assembly(self.graph, self._source, self._names())
        self._added: list[tuple[int, int, int]] = []  # source, micro-batch, replica

    @cached_property
    def _times(self) -> Int64[np.ndarray, " ops"]:
        return self.families.copies(~self.repeated)

    def on(self, ops: Integer[np.ndarray, " n"], replica: int | Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """The copies of ops that run once which a replica reads: its own or, where it has none, the first ones."""
        return self.first[ops] + self.families.place[self.family[ops], replica]

    def has(self, ops: Integer[np.ndarray, " n"], replica: int) -> Bool[np.ndarray, " n"]:
        """Whether a replica has a copy of each of these ops that run once."""
        return self.families.has[self.family[ops], replica]

    def tag(self, family: int, replica: int) -> str:
        """How the name of what runs once on a replica ends."""
        return "" if self.replicas == 1 or family == ONE_HOME else f"@r{replica}"

    def group(self, name: str, replica: int, copy: int) -> str:
        """The name of a colocation group of a replica, of a micro-batch or, without either, of the step."""
        if copy != NONE:
            return f"{name}@{copy}"
        return f"{name}@r{replica}" if self.replicas > 1 and replica != NONE else name

    @cached_property
    def _leaving(self) -> Bool[np.ndarray, " edges"]:
        """True for edges from repeated ops to ops that run once."""
        return self.repeated[self.graph.edge_src] & ~self.repeated[self.graph.edge_dst]

    @cached_property
    def gathered(self) -> Int64[np.ndarray, " edges"]:
        """The edges that carry a tensor of every micro-batch to an op that runs once."""
        graph = self.graph
        of_rows = self.by_rows[graph.edge_dst] & np.append(rows(graph), False)[graph.edge_data]
        return np.flatnonzero(self._leaving & (of_rows | (graph.edge_bytes > SCALAR_BYTES)))

    @cached_property
    def losses(self) -> list[int]:
        """The outputs that a step trains on: scalar results of the forward pass."""
        graph = self.graph
        if not graph.phase.among(["update"]).any():
            return []
        scalar = graph.output_is_result & (graph.output_bytes <= SCALAR_BYTES)
        return np.flatnonzero(scalar & (self.repeated & graph.phase.among(["forward"]))[graph.output_op]).tolist()

    def trains(self, loss: int) -> Int64[np.ndarray, " edges"]:
        """The edges that carry a loss to repeated ops of the backward pass."""
        graph = self.graph
        of_loss = np.flatnonzero(graph.edge_data == loss)
        return of_loss[(self.repeated & graph.phase.among(BACKWARD))[graph.edge_dst[of_loss]]]

    def _check_size(self) -> None:
        """Raises ValueError for more ops or edges than a graph may have, before they take memory."""
        summed = self.gathered[~self.by_rows[self.graph.edge_dst[self.gathered]]]
        sums = len(np.unique(self.graph.edge_data[summed])) * (self.micro_batches - self.replicas)
        edges = int(self._times[self.graph.edge_dst].sum()) + 2 * sums
        for what, count, most in (("ops", int(self._times.sum()) + sums, MAX_OPS), ("edges", edges, MAX_EDGES)):
            if count > most:
                raise ValueError(
                    f"micro_batches: {self.micro_batches} make more {what} than the {most:,} that a graph may have"
                )

    def _names(self) -> list[str]:
        rows = np.stack([self._source, self._micro_batch, self._replica], axis=1).tolist()
        family = self.family.tolist()
        return [
            self.graph.op_names[op] + (f"@{copy}" if copy != NONE else self.tag(family[op], replica))
            for op, copy, replica in rows
        ]

    def copy(self) -> None:
        """Joins the copies as far as one reads or awaits another."""
        self._copy_edges()
        self._copy_aliases()
        self._order_running()
        self._grow()
        self._colocate()

    def add(self, op: Op, source: int, copy: int, replica: int, alias: int = NONE) -> int:
        """The number of an op that is added for an op of the graph; `copy` is `NONE` for all micro-batches."""
        self._added.append((source, copy, replica))
        return self.assembly.add(op, alias)

    def step(self) -> ComputationGraph:
        """The graph of the copies and of what was added. Raises ValueError if two ops have a name."""
        columns = self.assembly.columns()
        _refuse_twice("op", columns["op_names"])
        return ComputationGraph(name=self.graph.name, **columns, copies=self._record())

    def _copy_edges(self) -> None:
        """All edges but those of what is gathered and those that lead from a loss to the backward pass."""
        graph, first, connect = self.graph, self.first, self.assembly.connect
        kept = np.ones(graph.num_edges, dtype=bool)
        kept[self.gathered] = False
        for loss in self.losses:
            kept[self.trains(loss)] = False
        src, output, dst = graph.edge_src, graph.edge_output, graph.edge_dst
        again, many = kept & self.repeated[dst], self.repeated[src]
        for copy in range(self.micro_batches):
            replica = self.families.replica[self.family[dst], copy]
            given = np.where(many, first[src] + copy, self.on(src, replica))
            connect(given[again], output[again], first[dst[again]] + copy)
        once, leaving = np.flatnonzero(kept & ~again & ~many), np.flatnonzero(kept & self._leaving)
        control, scalars = leaving[output[leaving] == CONTROL], leaving[output[leaving] != CONTROL]
        for copy in range(self.micro_batches):
            replica = self.families.replica[self.family[dst[control]], copy]
            connect(first[src[control]] + copy, output[control], self.on(dst[control], replica))
        waits = self._at_one_home[dst] & (output == CONTROL)  # for every replica; data is read of the first
        for replica in range(self.replicas):
            some = once[self.has(dst[once], replica) | waits[once]]
            connect(self.on(src[some], replica), output[some], self.on(dst[some], replica))
            some = scalars[self.has(dst[scalars], replica)]
            for copy in range(self.micro_batches if len(some) else 0):
                connect(first[src[some]] + copy, output[some], self.on(dst[some], replica))

    def _copy_aliases(self) -> None:
        """An alias of what is gathered is set where it is read; that of a scalar is an alias of the last copy's."""
        graph, assembly = self.graph, self.assembly
        alias = graph.output_alias[assembly.output]
        rows = np.flatnonzero(alias != NONE)
        row_op = np.repeat(np.arange(len(self._source)), np.diff(assembly.output_ptr))[rows]
        named = graph.output_op[alias[rows]]
        copy = np.where(self._micro_batch[row_op] == NONE, self.micro_batches - 1, self._micro_batch[row_op])
        once = self.families.place[self.family[named], self._replica[row_op]]
        holder = self.first[named] + np.where(self.repeated[named], copy, once)
        assembly.copied["output_alias"][rows] = assembly.output_ptr[holder] + alias[rows] - graph.output_ptr[named]

    def _order_running(self) -> None:
        """State that the forward pass updates is updated by one micro-batch after another, of its replica or of all."""
        for writer, reader, variable in running_order(self.graph, self.repeated):
            earlier, later = self.families.turns(int(self.family[variable]))
            self.assembly.connect(self.first[writer] + earlier, [CONTROL] * len(earlier), self.first[reader] + later)

    def _grow(self) -> None:
        """An update by rows works on the rows of all micro-batches."""
        copied, number = self.assembly.copied, self.micro_batches
        more, grown = np.flatnonzero(self.by_rows[self._source]), np.flatnonzero(self._grown[self.assembly.output])
        rank = np.maximum(copied["output_rank"], 0)
        times = dict.fromkeys(("flops", "bytes_accessed", "workspace_bytes", "given_time_ns"), more)
        times |= {"output_bytes": grown, "output_dims": (np.cumsum(rank) - rank)[grown]}
        for column, some in times.items():
            values = copied[column][some]
            if (too_many := values > MOST[column] // number).any():
                raise ValueError(
                    f"micro_batches: {number} times the {column} {int(values[too_many][0])} of an update by rows "
                    f"is more than the {MOST[column]} that a graph may have"
                )
            copied[column][some] = np.where(values == NONE, NONE, values * number)

    def _colocate(self) -> None:
        """Groups of the copies. Those of an op are a group, together; free, a group has copies for each micro-batch."""
        graph, groups = self.graph, self.graph.colocation
        group = groups.index[self._source].astype(np.int64)
        again = self.repeated[self._source]
        if self.placed == "together":  # an op without a group is one with its copies
            group = np.where(again & (group == NONE), len(groups.values) + self._source, group)
        if self.placed in AT_HOME:
            free = self.repeated if self.placed in FREELY else self.families.near
            apart = (graph.allowed.index != NONE) | self._at_one_home | free
            group = np.where(apart[self._source], group, WHOLE)
        copy = np.where(again & (self.placed in FREELY), self._micro_batch, NONE)
        replica = np.where(self._at_one_home[self._source] | (copy != NONE), NONE, self._replica)
        keys, index = np.unique(np.stack([group, replica, copy], axis=1), axis=0, return_inverse=True)
        names = [
            None if label == NONE
            else f"@r{home}" if label == WHOLE
            else self.group(groups.values[label], home, micro_batch) if label < len(groups.values)
            else self.group(f"{graph.op_names[label - len(groups.values)]}@", home, micro_batch)
            for label, home, micro_batch in keys.tolist()
        ]  # fmt: skip
        _refuse_twice("colocation group", [name for name in names if name is not None])
        self.assembly.copied["colocation"] = Categorical.of(names).rows(index.ravel())

    def _record(self) -> Copies:
        source, copy, replica = np.array(self._added, dtype=np.int64).reshape(-1, 3).T
        stated = np.arange(len(self._origin)) >= self._original.num_ops  # a state beside its op
        return Copies(
            self._original, self._shares,
            self._origin[np.concatenate([self._source, source])].astype(np.int32),
            np.concatenate([self._micro_batch, copy]).astype(np.int32),
            np.concatenate([self._replica, replica]).astype(np.int32),
            np.concatenate([stated[self._source], np.ones(len(source), dtype=bool)]),
            self.placed, self._shared, self._one_home, self._family_shares, self.ring_size,
        )  # fmt: skip


def _refuse_twice(what: str, names: Sequence[str]) -> None:
    """Raises ValueError for a name that stands for two."""
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise ValueError(f"{what} {twice!r} has the name of a copy or a sum of another; give it another name")
