"""Gathers what the micro-batches of a step compute: means of losses, sums or concatenations, rings over replicas.

The ops that it adds to the copies stand between those for each micro-batch and those that run once
(docs/execution-model.md#copies).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
from jaxtyping import Int64, Integer

from gnnplace.choices import AT_HOME
from gnnplace.graph import MAX_OPS, NONE, ComputationGraph, Op, Output
from gnnplace.transformations.copying import Copying
from gnnplace.transformations.families import ONE_HOME
from gnnplace.transformations.ring import Total, all_reduced, buckets, ops_of_rings

DEFAULT_ITEM = 4  # bytes of an element, where an output has no shape


class Gathering:
    """The step that is made of these copies. Each is gathered once."""

    def __init__(self, copies: Copying) -> None:
        self._copies, self._graph, self._assembly = copies, copies.graph, copies.assembly
        self._is_whole, self._is_at_home = copies.placed == "whole", copies.placed in AT_HOME
        self._partial: list[tuple[int, Integer[np.ndarray, " readers"]]] = []  # what a ring sums, its readers

    def step(self) -> ComputationGraph:
        """The graph of the step. Raises ValueError for a name that an op and a copy of another op have."""
        self._copies.copy()
        for loss in self._copies.losses:
            self._divide(loss)
        edges = self._copies.gathered
        data, readers = self._graph.edge_data[edges], self._graph.edge_dst[edges]
        for output in np.unique(data).tolist():
            self._gather(output, readers[data == output])
        self._reduce()
        return self._copies.step()

    def _divide(self, loss: int) -> None:
        """Divides the loss of each micro-batch by their number. The quotients are results, and the backward pass's."""
        copies, assembly = self._copies, self._assembly
        op, index = self._op_and_index(loss)
        readers = self._graph.edge_dst[copies.trains(loss)]
        for copy, replica in enumerate(copies.families.replica[copies.family[op]].tolist()):
            given = int(copies.first[op]) + copy
            home = f"@r{replica}" if self._is_whole else None
            mean = copies.add(self._like(loss, f"/mean{index or ''}@{copy}", home, is_result=True), op, copy, replica)
            assembly.copied["output_is_result"][assembly.first_output(given) + index] = False
            assembly.connect([given], [index], [mean])
            self._read_instead(loss, (mean, 0), readers, copies.first[readers] + copy)

    def _gather(self, output: int, readers: Integer[np.ndarray, " readers"]) -> None:
        """Sends a tensor of all micro-batches to its readers, summed or, for updates by rows, concatenated."""
        by_rows = self._copies.by_rows[readers]
        if len(some := readers[by_rows]):
            self._send(output, self._concatenated(output, some), some)
        if not len(some := readers[~by_rows]):
            return
        if len(self._copies.families.replicas(self._family(some))) == 1:
            self._send(output, self._sums(output, some), some)
        else:
            self._partial.append((output, some))

    def _family(self, readers: Integer[np.ndarray, " readers"]) -> int:
        """The family for which a tensor is gathered: of those of its readers the one with the fewest replicas."""
        return int(self._copies.family[readers].min())

    def _reduce(self) -> None:
        """Sums gradients over replicas by rings, in the order in which they are ready."""
        graph, copies = self._graph, self._copies
        self._partial.sort(key=lambda gradient: (int(graph.level[graph.output_op[gradient[0]]]), gradient[0]))
        readers = dict(self._partial)
        filled = list(buckets([self._total(output, some) for output, some in self._partial]))
        self._check_rings([list(bucket[0].at) for bucket in filled])

        def add(op: Op, source: int, replica: int, alias: int) -> int:
            return copies.add(op, source, NONE, replica, alias)

        for number, bucket in enumerate(filled):
            reduced = all_reduced(f"bucket{number}", bucket, self._assembly, add, copies.ring_size)
            for index, total in enumerate(bucket):
                self._send(total.output, {r: (op, index) for r, op in reduced.items()}, readers[total.output])

    def _check_rings(self, replicas: Sequence[Sequence[int]]) -> None:
        """Raises ValueError for more ops of rings than a graph may have, before they take memory."""
        if (ops := sum(ops_of_rings(each, self._copies.ring_size) for each in replicas)) > MAX_OPS:
            raise ValueError(
                f"replicas: the rings of {max(map(len, replicas))} for {len(replicas)} buckets make {ops:,} ops, more "
                f"than the {MAX_OPS:,} that a graph may have"
            )

    def _total(self, output: int, readers: Integer[np.ndarray, " readers"]) -> Total:
        """A gradient summed over the micro-batches of each replica."""
        at, share = self._sums(output, readers), self._copies.families.shares[self._family(readers)]
        homes = {replica: self._home(readers, replica) for replica in at}
        spare = {replica: bool(share[replica] > 1) or self._is_spare(output) for replica in at}
        return Total(int(self._graph.output_op[output]), output, self._output(output), at, spare, homes)

    def _send(self, output: int, at: Mapping[int, tuple[int, int]], readers: Integer[np.ndarray, " readers"]) -> None:
        """Lets ops that run once read what their replica has in place of an output: `at[r]`, else the first."""
        first = next(iter(at.values()))
        for replica in range(self._copies.replicas):
            some = readers[self._copies.has(readers, replica)]
            self._read_instead(output, at.get(replica, first), some, self._copies.on(some, replica))

    def _read_instead(
        self,
        output: int,
        sent: tuple[int, int],
        readers: Integer[np.ndarray, " readers"],
        copies: Int64[np.ndarray, " readers"],
    ) -> None:
        """Lets these copies of the readers of an output read the output `sent` of another op."""
        graph, assembly = self._graph, self._assembly
        op, index = sent
        assembly.connect([op] * len(readers), [index] * len(readers), copies)
        for reader, copy in zip(readers.tolist(), copies.tolist(), strict=True):
            outputs = np.arange(graph.output_ptr[reader], graph.output_ptr[reader + 1])
            aliases = np.flatnonzero(graph.output_alias[outputs] == output)
            start = assembly.first_output(copy)
            assembly.copied["output_alias"][start + aliases] = assembly.first_output(op) + index

    def _sums(self, output: int, readers: Integer[np.ndarray, " readers"]) -> dict[int, tuple[int, int]]:
        """The running sum of an output's micro-batches on each replica that has the readers' family."""
        families, family = self._copies.families, self._family(readers)
        return {
            replica: self._summed(
                output, families.micro_batches(family, replica), replica, self._home(readers, replica)
            )
            for replica in families.replicas(family)
        }

    def _summed(
        self, output: int, copies: Int64[np.ndarray, " copies"], replica: int, home: str | None
    ) -> tuple[int, int]:
        """The op, and its output, of the running sum of some micro-batches, in place where nobody else reads."""
        assembly = self._assembly
        op, index = self._op_and_index(output)
        first = int(self._copies.first[op])
        total, at = first + int(copies[0]), index
        alias = assembly.first_output(total) + index if self._is_spare(output) else NONE
        for copy in copies[1:].tolist():
            like = self._like(output, f"/sum{index or ''}@{copy}", home)
            added = self._copies.add(like, op, copy, replica, alias)
            assembly.connect([total, first + copy], [at, index], [added, added])
            total, at, alias = added, 0, assembly.first_output(added)
        return total, at

    def _concatenated(self, output: int, readers: Integer[np.ndarray, " readers"]) -> dict[int, tuple[int, int]]:
        """The concatenation of the rows of all micro-batches on each replica that has the readers' family."""
        copies, family, number = self._copies, self._family(readers), self._copies.micro_batches
        op, index = self._op_and_index(output)
        of_one = self._output(output)
        shape = of_one.shape and (of_one.shape[0] * number, *of_one.shape[1:])
        rows, at = replace(of_one, bytes=of_one.bytes * number, shape=shape), dict[int, tuple[int, int]]()
        for replica in copies.families.replicas(family):
            home = self._home(readers, replica) if self._is_at_home else None
            like = self._like(output, f"/concat{index or ''}{copies.tag(family, replica)}", home)
            concat = replace(like, kind="concat", canonical_kind="concat", flops=0, outputs=(rows,))
            together = copies.add(concat, op, NONE, replica)
            self._assembly.connect(copies.first[op] + np.arange(number), [index] * number, [together] * number)
            at[replica] = together, 0
        return at

    def _op_and_index(self, output: int) -> tuple[int, int]:
        """The op of an output, and the output's number among those of the op."""
        op = int(self._graph.output_op[output])
        return op, output - int(self._graph.output_ptr[op])

    def _output(self, output: int) -> Output:
        """An output like this one, with a buffer of its own."""
        graph = self._graph
        return Output(int(graph.output_bytes[output]), graph.shape(output), graph.output_dtype[output])

    def _like(self, output: int, suffix: str, colocation: str | None = None, is_result: bool = False) -> Op:
        """An op beside the op of an output that computes a tensor like this one, an operation for each element."""
        graph, like = self._graph, replace(self._output(output), is_result=is_result)
        op = int(graph.output_op[output])
        kinds = graph.allowed[op]
        if self._is_at_home and kinds is not None:
            colocation = None  # a replica stands on any kind
        return Op(
            f"{graph.op_names[op]}{suffix}", "sum", (like,),
            flops=like.bytes // DEFAULT_ITEM if like.shape is None else prod(like.shape),
            allowed=None if kinds is None else tuple(kinds.split(",")), colocation=colocation, layer=graph.layer[op],
            phase=graph.phase[op], block=None if graph.block[op] == NONE else int(graph.block[op]),
            canonical_kind="elementwise",
        )  # fmt: skip

    def _is_spare(self, output: int) -> bool:
        """True if views and what reads the sum alone read the buffer of an output, so that the sum may take it."""
        graph, repeated = self._graph, self._copies.repeated
        shares = (graph.output_root == graph.output_root[output]) & repeated[graph.output_op]
        if not shares[graph.output_root[output]] or graph.output_is_result[shares].any():
            return False
        reads = np.flatnonzero(np.append(shares, False)[graph.edge_data])
        readers = graph.edge_dst[reads]
        apart = np.bincount(graph.output_op[~shares], minlength=graph.num_ops) > 0
        views = np.isin(readers, graph.output_op[shares]) & ~apart[readers]
        sums = (graph.edge_data[reads] == output) & ~repeated[readers] & ~self._copies.by_rows[readers]
        return bool((views | sums).all())

    def _home(self, readers: Integer[np.ndarray, " readers"], replica: int) -> str | None:
        """The colocation group of a sum: of the replica, if it is whole, or of the family's first update with one."""
        graph, family = self._graph, self._family(readers)
        if self._is_at_home and family != ONE_HOME:
            return f"@r{replica}"
        ours = readers[self._copies.family[readers] == family]
        updates = ours[graph.phase.among(["update"])[ours] & (graph.colocation.index[ours] != NONE)]
        if not len(updates):
            return None
        return self._copies.group(str(graph.colocation[int(updates[0])]), NONE if family == ONE_HOME else replica, NONE)
