"""Channels serve first in, first out: what one op sends leaves a channel before what an op that ends later sends there.

Every simulated step does that, and sends the outputs of an op in order, each to its destinations in order (EXECUTION_MODEL.md). Here ops
that end at one time may go in either order, and so may destinations whose order could change if equal devices changed places: what is
asked for stays true then, as `symmetry` needs it. Receive channels stay free.

An op may end later than the program says: it lasts longer beside others that use its memory, and times are rounded down. So one op must
go before another only where it ends first however long it lasts.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool

from gnnplace.baselines.cp_sat.model import Program, Sent
from gnnplace.baselines.cp_sat.symmetry import equal_devices
from gnnplace.graph import ComputationGraph

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import IntVar


MOST_PAIRS = 20_000  # a program of more is too large to be proved in seconds, and slower to write and to start


class Block(NamedTuple):
    """What one op sends over a channel, if `used`: no earlier than `first` and gone at `last`."""

    used: IntVar
    first: Any
    last: Any


class Send(NamedTuple):
    """A transfer of an output to a device, if it is `on` one channel."""

    output: int
    there: int
    sent: Sent
    on: IntVar


def add_queues(program: Program) -> None:
    """Orders what two ops send over one channel by their ends; nothing where there are more than `MOST_PAIRS` such pairs."""
    model, earlier = program.model, _earlier(program.problem.graph)
    order: dict[tuple[int, int], Any] = {}
    channels = _sends(program)
    if sum(len(ops) * (len(ops) - 1) // 2 for ops in channels.values()) > MOST_PAIRS:
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
    """Whether op i comes before op j on a path, at [j, i]."""
    earlier = np.zeros((graph.num_ops, graph.num_ops), dtype=bool)
    for op in graph.order.tolist():
        inputs = graph.edge_src[graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]]
        earlier[op, inputs] = True
        earlier[op] |= earlier[inputs].any(axis=0)
    return earlier


def _latest_ends(program: Program) -> list[Any]:
    """When each op ends at the latest: it lasts its longest time, rounded up as its start is rounded down."""
    longest = -(-program.problem.slowest_ns // program.unit_ns)
    rows = zip(program.start, longest.tolist(), program.stands, strict=True)
    return [start + sum(time * on for time, on in zip(times, row, strict=True)) for start, times, row in rows]


def _order(program: Program, p: int, q: int, earlier: Bool[np.ndarray, "ops ops"], latest: list[Any]) -> IntVar:
    """Says that p may end no later than q; its negation, that q may end no later than p."""
    model = program.model
    for one, other, answer in ((p, q, 1), (q, p, 0)):
        if earlier[other, one]:
            return model.new_constant(answer)
    first = model.new_bool_var("")
    model.add(program.end[p] <= latest[q]).only_enforce_if(first)
    model.add(program.end[q] <= latest[p]).only_enforce_if(first.negated())
    return first


def _sends(program: Program) -> dict[int, dict[int, list[Send]]]:
    """What each op may send over each channel, by output and destination."""
    cluster, owner = program.problem.cluster, program.problem.graph.output_op
    sends: dict[int, dict[int, list[Send]]] = defaultdict(lambda: defaultdict(list))
    for (output, there), sent in sorted(program.sent.items()):
        for here, on in sent.by.items():
            channel = int(cluster.link_channel[cluster.link_index[here, there]])
            sends[channel][int(owner[output])].append(Send(output, there, sent, on))
    return sends


def _ranges(program: Program) -> tuple[list[int], list[int]]:
    """The first and the last of the devices that are equal to each."""
    of = {device: devices for devices in equal_devices(program.problem) for device in devices}
    return [min(of[device]) for device in sorted(of)], [max(of[device]) for device in sorted(of)]


def _block(program: Program, sends: list[Send], first: list[int], last: list[int]) -> Block:
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
