"""The least step: what a step of several micro-batches contains in every form of it.

A form says how many replicas there are, their shares, where copies may stand, how often a weight is sent, and which
variables have one home (docs/execution-model.md#micro-batches). Every form has the copies of repeated ops, with the
same times and the same edges between them, and at least one instance of each op that runs once. So a bound that needs
nothing else holds for every form. The least step is the graph of one micro-batch, with

- `times`: how often each op runs at least: M times if it is repeated, else once;
- the edges that hold in every form. For each micro-batch, take an instance of every op: its copy if the op is repeated,
  and, if it runs once, that which the micro-batch reads or, behind the micro-batches, that of replica 0 or of the one
  home. Of an edge of the graph there is then a path between these instances. Left out are edges between ops that run
  once and depend on no micro-batch (a derived op with one home may read another replica), and control edges from
  repeated ops to ops that run once (those of other replicas do not wait).

On some edges other ops may stand between both ends, on any device (`by_way_ns`):

- from a variable or derived op to a repeated op: a fetch. It carries the whole tensor, so some transfer of its size
  is on the way to another device.
- from a loss to the backward pass: a mean of the same size.
- from a repeated op to one that runs once, of more than 8 bytes: sums, concatenations, or rings of up to M replicas,
  which send parts of at least the M-th of it.

Ops of a colocation group stand together in every form if they are of one micro-batch and layer, and all or none of them
name device kinds. Replicas and homes may part a group of ops that run once.

Besides, the step adds up gradients (`adding_ns`). A gradient of b bytes is added M - 1 times in all, in one piece or
in parts, which moves 3 b bytes each time: two are read, and one is written. Launches do not count, since a ring adds a
bucket of gradients at once. A concatenation runs once at least.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int64

from gnnplace.bounds.relaxed import NEVER, Relaxed, held_bytes, relaxed_by
from gnnplace.cluster import NO_CHANNEL
from gnnplace.graph import CONTROL, NONE, Categorical, ComputationGraph
from gnnplace.problems import NS_PER_S, Problem, duration_ns
from gnnplace.transformations.repetition import BACKWARD, SCALAR_BYTES, runs_once
from gnnplace.transformations.sparse_updates import sparse_updates
from gnnplace.transformations.state import with_state_apart
from gnnplace.units.units import units


@dataclass(frozen=True, eq=False)
class LeastStep:
    """The least step of `problem`, a step of `micro_batches` in any form.

    `one` is the graph of one micro-batch, in which only variables have state, and `repeated` tells its repeated ops.
    `posed` has the edges that hold in every form, those `edges` of `one`, and no aliases.
    """

    problem: Problem
    micro_batches: int
    one: ComputationGraph
    repeated: Bool[np.ndarray, " ops"]
    by_rows: Bool[np.ndarray, " ops"]
    edges: Int64[np.ndarray, " kept"]
    posed: Problem

    @property
    def times(self) -> Int64[np.ndarray, " ops"]:
        """How often each op runs in every form."""
        return np.where(self.repeated, self.micro_batches, 1)

    @cached_property
    def losses(self) -> Bool[np.ndarray, " outputs"]:
        """True for the outputs of which the step computes means, if it has an update."""
        one, forward = self.one, self.repeated & self.one.phase.among(["forward"])
        scalar = one.output_is_result & (one.output_bytes <= SCALAR_BYTES)
        return scalar & forward[one.output_op] & one.phase.among(["update"]).any()

    @cached_property
    def gathered(self) -> Int64[np.ndarray, " edges"]:
        """The edges of `one` that carry more than a scalar from a repeated op to one that runs once."""
        one = self.one
        leaves = self.repeated[one.edge_src] & ~self.repeated[one.edge_dst]
        return np.flatnonzero(leaves & (one.edge_bytes > SCALAR_BYTES))

    def relaxed(self, most_classes: int) -> Relaxed:
        """The least step on classes of devices."""
        graph, one = self.posed.graph, self.one
        owns = one.output_alias == NONE
        needed = one.persistent_bytes + one.workspace_bytes
        np.add.at(needed, one.output_op[owns], one.output_bytes[owns])
        held = held_bytes(replace(one, output_is_result=one.output_is_result & ~self.losses))
        return relaxed_by(self.posed, most_classes, units(graph, "ops"), needed, held, self._by_way_ns)

    @cached_property
    def added(self) -> Int64[np.ndarray, " added"]:
        """The outputs of `one` that are summed or concatenated."""
        return np.unique(self.one.edge_data[self.gathered])

    def adding_ns(self, relaxed: Relaxed) -> Float[np.ndarray, "added classes"]:
        """The least time of all sums and the concatenation of each of the `added`, on a class of devices."""
        one, number = self.one, self.micro_batches
        by_rows = self.by_rows[one.edge_dst[self.gathered]]
        summed, joined = (np.isin(self.added, one.edge_data[self.gathered[some]]) for some in (~by_rows, by_rows))
        moved = one.output_bytes[self.added] * (3.0 * (number - 1) * summed + 2.0 * number * joined) * (1 - 1e-12)
        least = np.full((len(self.added), relaxed.num_classes), np.inf)
        for device, c in zip(self.problem.cluster.devices, relaxed.class_of.tolist(), strict=True):
            took = moved * (NS_PER_S / device.memory_bytes_per_s) + joined * device.launch_ns
            least[:, c] = np.minimum(least[:, c], took)
        return least

    @cached_property
    def _by_way_ns(self) -> Int64[np.ndarray, " kept"]:
        """The least delay of each edge of `posed` on which ops that a form adds may stand; `NONE` for the others."""
        one, kept = self.one, self.edges
        src, dst, data, size = one.edge_src[kept], one.edge_dst[kept], one.edge_data[kept], one.edge_bytes[kept]
        here, there, reads = self.repeated[src], self.repeated[dst], data != NONE
        parted = reads & here & ~there & (size > SCALAR_BYTES)
        trains = reads & here & there & self.losses[data] & one.phase.among(BACKWARD)[dst]
        by_way = parted | trains | (reads & ~here & there)
        least = np.where(parted, size // self.micro_batches, size)
        return np.where(by_way, least_delay_ns(self.problem, least), NONE)


def least_delay_ns(problem: Problem, size: Int64[np.ndarray, " sizes"]) -> Int64[np.ndarray, " sizes"]:
    """The least time from the start of a transfer of so many bytes to its arrival, on any link; `NEVER` without one."""
    least = np.full(len(size), NEVER, dtype=np.int64)
    for number, link in enumerate(problem.cluster.links):
        hops = 1 + int(problem.cluster.link_receive_channel[number] != NO_CHANNEL)
        took = np.maximum(1, link.overhead_ns + duration_ns(size, link.bandwidth_bytes_per_s))
        least = np.minimum(least, hops * took + link.latency_ns)
    return least


def least_step(problem: Problem) -> LeastStep:
    """The least step of a problem of several micro-batches in any form."""
    copies = problem.graph.copies
    assert copies is not None
    one, origin = with_state_apart(copies.original)
    once = runs_once(one, copies.shared, np.bincount(origin, minlength=one.num_ops) > 1)
    edges = np.flatnonzero(_in_every_form(one, ~once))
    graph = replace(
        one, colocation=_together(one, ~once), output_alias=np.full(len(one.output_bytes), NONE, dtype=np.int64),
        edge_src=one.edge_src[edges], edge_output=one.edge_output[edges], edge_dst=one.edge_dst[edges],
    )  # fmt: skip
    row = np.zeros(copies.original.num_ops, dtype=np.int64)
    row[copies.source[~copies.added]] = np.flatnonzero(~copies.added)
    apart = np.arange(one.num_ops) >= copies.original.num_ops  # a state, and a read of it
    time_ns = np.where(apart[:, None], 1, problem.time_ns[row[origin]])
    posed = Problem(graph, problem.cluster, time_ns)
    by_rows = sparse_updates(one, once).by_rows
    return LeastStep(problem, copies.micro_batches, one, ~once, by_rows, edges, posed)


def _in_every_form(one: ComputationGraph, repeated: Bool[np.ndarray, " ops"]) -> Bool[np.ndarray, " edges"]:
    """True for the edges of which every form has a path between the instances of both ops for a micro-batch."""
    behind = repeated.copy()
    for op in one.order.tolist():
        behind[op] |= behind[one.edge_src[one.in_edges[one.in_ptr[op] : one.in_ptr[op + 1]]]].any()
    src, dst = one.edge_src, one.edge_dst
    waits = repeated[src] & ~repeated[dst] & (one.edge_output == CONTROL)
    return ~waits & (repeated[dst] | behind[src])


def _together(one: ComputationGraph, repeated: Bool[np.ndarray, " ops"]) -> Categorical:
    """The colocation groups that hold in every form."""
    kinds = one.allowed.index != NONE
    columns = (one.colocation.index, one.layer.index, kinds, repeated)
    groups = zip(*(column.tolist() for column in columns), strict=True)
    return Categorical.of(
        f"{group}/{layer}/{names_kinds}" if again and group != NONE else None
        for group, layer, names_kinds, again in groups
    )
