"""The critical chain of a step: the last op, the op or transfer that it waited for, and so on back to the start.

An op waits for an input or for an idle stream of its device. A transfer waits for the op that sends it or for its
channel. So the chain is the critical path of the step that includes waiting for busy devices and channels.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.compiled import kernel, part
from gnnplace.graph import NONE
from gnnplace.problems import Problem
from gnnplace.result import Timeline
from gnnplace.schedules.arrivals import Arrivals, arrivals


class Waiting(NamedTuple):
    """What every op and every transfer of a step waited for.

    The nodes are the ops, then the transfers: transfer t is node t + ops. `behind` is the node whose end allowed a node
    to start. It is `NONE` if a node waited for nothing, or for something else (a device that copies by itself, a
    receive channel). `op` is the op itself, or the sender of a transfer. `queued` is True if a node waited for its
    device or for a channel, so that another order may shorten the step.
    """

    behind: Int64[np.ndarray, " nodes"]
    start_ns: Int64[np.ndarray, " nodes"]
    op: Int64[np.ndarray, " nodes"]
    queued: Bool[np.ndarray, " nodes"]
    ready_ns: Int64[np.ndarray, " ops"]  # the arrival of the last input

    def chain(self, node: int) -> Int64[np.ndarray, " chain"]:
        """The node, the node that it waited for, and so on back to the start of the step."""
        return _chain(self.behind, node)


def waiting(
    problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline, edge_arrivals: Arrivals | None = None
) -> Waiting:
    """What the ops and transfers of a step waited for.

    `device`, `timeline` and `edge_arrivals` are the placement of the step, its timeline and its arrivals.
    """
    graph, cluster = problem.graph, problem.cluster
    edge_arrivals = arrivals(problem, device, timeline) if edge_arrivals is None else edge_arrivals
    source = graph.output_op[timeline.transfer_output].astype(np.int64)
    channel = cluster.link_channel[cluster.link_index[timeline.transfer_src, timeline.transfer_dst]].astype(np.int32)
    behind, queued, ready_ns = _waiting(
        device, timeline.start_ns, timeline.end_ns, graph.edge_src, graph.edge_dst, edge_arrivals,
        source, channel, timeline.transfer_start_ns, timeline.transfer_end_ns, timeline.receive_start_ns,
    )  # fmt: skip
    starts, ops = (
        np.concatenate([timeline.start_ns, timeline.transfer_start_ns]),
        np.concatenate([np.arange(problem.num_ops), source]),
    )
    return Waiting(behind, starts, ops, queued, ready_ns)


def chain_ns(problem: Problem, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> Int64[np.ndarray, " ops"]:
    """The part of the step time that each op and its transfers take on the critical chain.

    It is 0 off the chain; the sum is the step time.
    """
    waits, last = waiting(problem, device, timeline), int(timeline.end_ns.argmax())
    chain = waits.chain(last)
    start_ns = waits.start_ns[chain]
    waited = np.zeros(problem.num_ops, dtype=np.int64)
    np.add.at(waited, waits.op[chain], np.append(timeline.end_ns[last], start_ns[:-1]) - start_ns)
    return waited


@kernel
@no_type_check
def _waiting(
    device,
    start_ns,
    end_ns,
    edge_src,
    edge_dst,
    arrivals,
    source,
    channel,
    transfer_start_ns,
    transfer_end_ns,
    receive_start_ns,
):
    """`Waiting.behind`, `queued` and `ready_ns`.

    Behind an op is the last input that arrives when the op starts (or the transfer that brings the input). Without such
    an input it is an op that ends at that time on the same device. Behind a transfer is its sender if the sender ends
    when the transfer starts, else the transfer that ends at that time on the channel, else the sender.
    """
    ops, transfers = len(device), len(source)
    behind, queued, ready_ns = (
        np.full(ops + transfers, NONE),
        np.zeros(ops + transfers, np.bool_),
        np.zeros(ops, np.int64),
    )
    ended = _table(device, end_ns)
    for op in range(ops):
        behind[op] = _ending(ended, device, end_ns, device[op], start_ns[op])
    for edge in range(len(edge_src)):
        op, arrival = edge_dst[edge], arrivals.time_ns[edge]
        ready_ns[op] = max(ready_ns[op], arrival)
        if arrival == start_ns[op]:
            behind[op] = edge_src[edge] if arrivals.transfer[edge] == NONE else ops + arrivals.transfer[edge]
    for op in range(ops):
        queued[op] = start_ns[op] > ready_ns[op] and behind[op] != NONE
    ended = _table(channel, transfer_end_ns)
    for transfer in range(transfers):
        before = NONE
        if end_ns[source[transfer]] != transfer_start_ns[transfer]:
            before = _ending(ended, channel, transfer_end_ns, channel[transfer], transfer_start_ns[transfer])
        behind[ops + transfer] = source[transfer] if before == NONE else ops + before
        queued[ops + transfer] = before != NONE or receive_start_ns[transfer] > transfer_end_ns[transfer]
    return behind, queued, ready_ns


@part
@no_type_check
def _table(place, end_ns):
    """A hash table of rows by place and end. Of equal rows it holds the first."""
    size = 2
    while size < 2 * len(place):
        size *= 2
    table = np.full(size, NONE, np.int32)
    for row in range(len(place)):
        at = _slot(table, place[row], end_ns[row])
        while table[at] != NONE and not (place[table[at]] == place[row] and end_ns[table[at]] == end_ns[row]):
            at = (at + 1) & (size - 1)
        if table[at] == NONE:
            table[at] = row
    return table


@part
@no_type_check
def _ending(table, place, end_ns, wanted, time_ns):
    """The first row with the place `wanted` and the end `time_ns`, or `NONE`."""
    at = _slot(table, wanted, time_ns)
    while table[at] != NONE and not (place[table[at]] == wanted and end_ns[table[at]] == time_ns):
        at = (at + 1) & (len(table) - 1)
    return table[at]


@part
@no_type_check
def _slot(table, place, time_ns):
    """The slot of the hash table at which the search for a place and an end begins."""
    word = (np.uint64(time_ns) + (np.uint64(place) << np.uint64(52))) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64(word >> np.uint64(32)) & (len(table) - 1)


@kernel
@no_type_check
def _chain(behind, node):
    """`Waiting.chain`."""
    size, at = 1, node
    while behind[at] != NONE:
        size, at = size + 1, behind[at]
    chain = np.empty(size, np.int64)
    for place in range(size):
        chain[place] = node
        node = behind[node]
    return chain
