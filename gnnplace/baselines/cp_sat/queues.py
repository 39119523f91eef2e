"""Channels serve first in, first out: the transfers of an op leave a channel before those of an op that ends later.

A simulated step also sends the outputs of an op in order, each to its destinations in order
(docs/execution-model.md#order-within-a-moment). The program leaves the order open for ops that end at the same time,
and for destinations whose order changes when equal devices change places, so that the renaming of `symmetry` keeps
every constraint. It does not order receive channels.

An op may end later than in the program, because others use its memory and because times are rounded down. So one op
must precede another only if it ends first whatever time it takes.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool

from gnnplace.baselines.cp_sat.model import ConstraintProgram, Sent
from gnnplace.baselines.cp_sat.symmetry import equal_devices
from gnnplace.graph import ComputationGraph

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import IntVar


MOST_PAIRS = 20_000  # with more pairs no proof takes seconds, and the program is slow to write and to start


class Block(NamedTuple):
    """The transfers of one op on a channel. If `used`, none starts before `first`, and all have left at `last`."""

    used: IntVar
    first: Any
    last: Any


class QueuedSend(NamedTuple):
    """A transfer of an output to device `there`, if it is `on` a given channel."""

    output: int
    there: int
    sent: Sent
    on: IntVar


def add_queues(program: ConstraintProgram) -> None:
    """Orders the transfers on a channel: of each two ops by the ends of the ops, and of each op by output and device.

    If there are more than `MOST_PAIRS` pairs of ops and of transfers of an op, it orders nothing.
    """
    model, earlier = program.model, _earlier(program.problem.graph)
    order: dict[tuple[int, int], Any] = {}
    channels = _sends(program)
    if sum(comb(len(each), 2) for ops in channels.values() for each in (ops, *ops.values())) > MOST_PAIRS:
        return
    latest = _latest_ends(program)
    first, last = _ranges(program)
    for ops in channels.values():
        blocks = {op: _block(program, sends, first, last) for op, sends in ops.items()}
        for (p, before), (q, after) in combinations(sorted(blocks.items()), 2):
            if (p, q) not in order:
                order[p, q] = _order(program, p, q, earlier, latest)
            both = [before.used, after.used]
            model.add(before.last <= after.first).only_enforce_if([order[p, q], *both])
            model.add(after.last <= before.first).only_enforce_if([order[p, q].negated(), *both])


def _earlier(graph: ComputationGraph) -> Bool[np.ndarray, "ops ops"]:
    """A matrix: entry [j, i] is True where op i is an ancestor of op j."""
    earlier = np.zeros((graph.num_ops, graph.num_ops), dtype=bool)
    for op in graph.order.tolist():
        inputs = graph.edge_src[graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]]
        earlier[op, inputs] = True
        earlier[op] |= earlier[inputs].any(axis=0)
    return earlier


def _latest_ends(program: ConstraintProgram) -> list[Any]:
    """The latest end of each op: its start plus its longest time, rounded up."""
    longest = -(-program.problem.slowest_ns // program.unit_ns)
    rows = zip(program.start, longest.tolist(), program.stands, strict=True)
    return [start + sum(time * on for time, on in zip(times, row, strict=True)) for start, times, row in rows]


def _order(
    program: ConstraintProgram, p: int, q: int, earlier: Bool[np.ndarray, "ops ops"], latest: list[Any]
) -> IntVar:
    """A variable: if true, p may end no later than q; if false, q may end no later than p."""
    model = program.model
    for one, other, answer in ((p, q, 1), (q, p, 0)):
        if earlier[other, one]:
            return model.new_constant(answer)
    first = model.new_bool_var("")
    model.add(program.end[p] <= latest[q]).only_enforce_if(first)
    model.add(program.end[q] <= latest[p]).only_enforce_if(first.negated())
    return first


def _sends(program: ConstraintProgram) -> dict[int, dict[int, list[QueuedSend]]]:
    """The possible transfers on each channel, by op."""
    cluster, owner = program.problem.cluster, program.problem.graph.output_op
    sends: dict[int, dict[int, list[QueuedSend]]] = defaultdict(lambda: defaultdict(list))
    for (output, there), sent in sorted(program.sent.items()):
        for here, on in sent.by.items():
            channel = int(cluster.link_channel[cluster.link_index[here, there]])
            sends[channel][int(owner[output])].append(QueuedSend(output, there, sent, on))
    return sends


def _ranges(program: ConstraintProgram) -> tuple[list[int], list[int]]:
    """The first and the last device of the class of each device."""
    peers = {device: devices for devices in equal_devices(program.problem) for device in devices}
    return [min(peers[device]) for device in sorted(peers)], [max(peers[device]) for device in sorted(peers)]


def _block(program: ConstraintProgram, sends: list[QueuedSend], first: list[int], last: list[int]) -> Block:
    if len(sends) == 1:
        return Block(sends[0].on, sends[0].sent.start, sends[0].sent.leaves)
    model = program.model
    begin, end = (model.new_int_var(0, program.horizon, "") for _ in range(2))
    used = model.new_bool_var("")
    for _, _, sent, on in sends:
        model.add_implication(on, used)
        model.add(begin <= sent.start).only_enforce_if(on)
        model.add(end >= sent.leaves).only_enforce_if(on)
    for one, other in combinations(sends, 2):
        if one.output < other.output or last[one.there] < first[other.there]:
            model.add(one.sent.leaves <= other.sent.start).only_enforce_if([one.on, other.on])
    return Block(used, begin, end)
