"""The features of a move that concern transfers: edges that stay within a device, all transfers before and after."""

from __future__ import annotations

from typing import no_type_check

from gnnplace.cluster import NO_LINK
from gnnplace.compiled import part_allocates_nothing
from gnnplace.graph import NONE
from gnnplace.moves.columns import (
    BESIDE_SOURCE,
    BESIDE_TARGET,
    CHAIN_SENT,
    INPUTS_TARGET,
    OUTPUTS_TARGET,
    SENT_AFTER,
    SENT_BEFORE,
    SENT_MORE,
)
from gnnplace.moves.situation import AT_ONCE, ON_CHANNEL, ON_DEVICE, ON_INPUT, RECEIVES
from gnnplace.schedules.ranks import NOTHING


@no_type_check
@part_allocates_nothing
def lag_ns(terrain, edge_output, here, there):
    """The time from the end of an op to the arrival of its output on a device, without waiting; -1 without a link."""
    if here == there:
        return 0.0
    link = terrain.delays.link_index[here, there]
    if link == NO_LINK:
        return -1.0
    latency = terrain.delays.link_latency_ns[link]
    if edge_output == NOTHING:
        return float(max(1, latency))
    return float(
        latency
        + terrain.delays.transfer_ns[edge_output, terrain.delays.link_rate[link]] * terrain.delays.link_hops[link]
    )


@no_type_check
@part_allocates_nothing
def neighbours(terrain, situation, work, ops, row):
    """Fills the features of edges between moved ops and others: shares of their bytes within a device, the chain."""
    stamp, edges = work.stamp[0], terrain.delays.edges
    inputs, outputs, inputs_there, outputs_there, beside_here, chain_sent = 1e-9, 1e-9, 0.0, 0.0, 0.0, 0.0
    for op in ops:
        here, there = situation.device[op], work.to[op]
        for at in range(terrain.in_ptr[op], terrain.in_ptr[op + 1]):
            edge = terrain.in_edge[at]
            source = terrain.edge_src[edge]
            moved = work.moved[source] == stamp
            new = work.to[source] if moved else situation.device[source]
            chain_sent += _chain_sent(terrain, situation, edges[edge].output, source, op, new, there)
            if not moved:
                size = terrain.edge_bytes[edge] + 1.0
                inputs += size
                inputs_there += size if new == there else 0.0
                beside_here += size if new == here else 0.0
        for edge in range(terrain.delays.out_ptr[op], terrain.delays.out_ptr[op + 1]):
            reader = edges[edge].dst
            if work.moved[reader] != stamp:
                new, size = situation.device[reader], terrain.edge_bytes[edge] + 1.0
                chain_sent += _chain_sent(terrain, situation, edges[edge].output, op, reader, there, new)
                outputs += size
                outputs_there += size if new == there else 0.0
                beside_here += size if new == here else 0.0
    row[BESIDE_TARGET] = (inputs_there + outputs_there) / (inputs + outputs)
    row[BESIDE_SOURCE] = beside_here / (inputs + outputs)
    row[INPUTS_TARGET], row[OUTPUTS_TARGET] = inputs_there / inputs, outputs_there / outputs
    row[CHAIN_SENT] = chain_sent / situation.step_ns


@no_type_check
@part_allocates_nothing
def _chain_sent(terrain, situation, output, source, reader, new, new_there):
    """The change of the chain between an op and a reader of its output.

    A transfer for which the chain waited disappears, or a new transfer appears on the chain.
    """
    if output == NOTHING:
        return 0.0
    old, old_there, received = situation.device[source], situation.device[reader], situation.chain_ns[reader, RECEIVES]
    if old != old_there and new == new_there and received > 0:
        return -min(received, situation.chain_ns[source, ON_CHANNEL] + situation.chain_ns[source, AT_ONCE])
    if (
        old == old_there
        and new != new_there
        and situation.chain_ns[reader, ON_INPUT] > 0
        and situation.end_ns[source] == situation.start_ns[reader]
    ):
        on_chain = situation.chain_ns[source, ON_DEVICE] + situation.chain_ns[source, ON_INPUT] > 0
        return max(0.0, lag_ns(terrain, output, new, new_there)) if on_chain else 0.0
    return 0.0


@no_type_check
@part_allocates_nothing
def transfers(terrain, situation, work, ops, row, occupied_ns):
    """Fills the features of transfers of all outputs that moved ops read or produce, before and after the move.

    An output is sent once to each other device with readers.
    """
    stamp, size, edges = work.stamp[0], 0, terrain.delays.edges
    for op in ops:
        here, there = situation.device[op], work.to[op]
        for output in range(terrain.output_ptr[op], terrain.output_ptr[op + 1]):
            size = _touch(work, output, size)
        for at in range(terrain.in_ptr[op], terrain.in_ptr[op + 1]):
            output = edges[terrain.in_edge[at]].output
            if output != NOTHING:
                size = _touch(work, output, size)
                work.more[output, here] -= 1
                work.more[output, there] += 1
    before = after = 0.0
    for output in work.outputs[:size]:
        source = terrain.output_op[output]
        old = situation.device[source]
        new = work.to[source] if work.moved[source] == stamp else old
        for device in range(len(situation.load_ns)):
            readers = situation.readers[output, device]
            if readers > 0 and device != old:
                before += _send(terrain, output, old, device, occupied_ns, -1.0)
            if readers + work.more[output, device] > 0 and device != new:
                after += _send(terrain, output, new, device, occupied_ns, 1.0)
    row[SENT_BEFORE], row[SENT_AFTER] = before / situation.step_ns, after / situation.step_ns
    row[SENT_MORE] = row[SENT_AFTER] - row[SENT_BEFORE]


@no_type_check
@part_allocates_nothing
def _touch(work, output, size):
    """Adds an output to the list `work.outputs` of this move unless it is there; returns the new length."""
    if work.touched[output] != work.stamp[0]:
        work.touched[output], work.outputs[size] = work.stamp[0], output
        for device in range(work.more.shape[1]):
            work.more[output, device] = 0
        return size + 1
    return size


@no_type_check
@part_allocates_nothing
def _send(terrain, output, here, there, occupied_ns, sign):
    """Adds a transfer to its channels (`sign` 1), or subtracts it (-1). Returns its time on one of them.

    The time is 0 without a link.
    """
    link = terrain.delays.link_index[here, there]
    if link == NO_LINK:
        return 0.0
    time_ns = float(terrain.delays.transfer_ns[output, terrain.delays.link_rate[link]])
    occupied_ns[terrain.channel[link]] += sign * time_ns
    if terrain.receive_channel[link] != NONE:
        occupied_ns[terrain.receive_channel[link]] += sign * time_ns
    return time_ns
