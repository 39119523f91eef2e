"""The simulated step, compiled: EXECUTION_MODEL.md to the nanosecond and the byte, for many placements of one problem.

A step is prepared in time linear in ops and edges (which buffers there are and who holds them, which messages each
op sends and who waits for them), then run event by event. Integers throughout; nothing depends on the number of threads.

- A *slot* is the buffer of one root on one device. A *touch* is an op that consumes or produces a root: it holds the slot.
- A *message* is an output, or the control of an op, on its way to one other device.
- A *source* is where time comes from: devices `0..D-1`, then channels; `next_ns` is when each next needs attention.

All compiled functions of the simulator are in this file: numba notices no change of a function that another file inlines.
"""

from __future__ import annotations

from typing import no_type_check

import numba
import numpy as np

from gnnplace.cluster import NO_LINK
from gnnplace.transforms.schedule import NOTHING

NEVER = 2**63 - 1


@numba.njit(cache=True, nogil=True)
@no_type_check
def simulate_rows(tables, device, priority, scratch, steps, trace):
    """Simulates every row of `device` and writes its row of `steps`, and of `trace` if that has rows."""
    for sample in range(len(device)):
        row = device[sample]
        place_ops(tables, row, scratch, steps, sample)
        hold_buffers(tables, row, scratch)
        address_messages(tables, row, scratch, steps, sample)
        if steps.linked[sample]:
            run_events(tables, row, priority[sample], scratch, steps, trace, sample)


@numba.njit(cache=True, nogil=True)
@no_type_check
def place_ops(tables, device, scratch, steps, sample):
    """Busy time, persistent memory and legality of each op where it stands; each device's rows in the queues."""
    first_row, busy, memory = scratch.first_row, steps.busy_ns[sample], steps.peak_memory_bytes[sample]
    first_row[:] = 0
    busy[:] = 0
    memory[:] = 0
    legal = True
    for op in range(len(device)):
        here = device[op]
        first_row[here + 1] += 1
        busy[here] += tables.delays.time_ns[op, here]
        memory[here] += tables.persistent_bytes[op]
        legal &= tables.allowed[op, here] and device[tables.leader[op]] == here
    for d in range(len(busy)):
        first_row[d + 1] += first_row[d]
    steps.legal[sample] = legal


@numba.njit(cache=True, nogil=True)
@no_type_check
def hold_buffers(tables, device, scratch):
    """Numbers the slots, root by root, and counts who holds each from the start of the step."""
    slot_of, holds, size, live = scratch.slot_of, scratch.holds, scratch.size, scratch.live
    newest = np.full(tables.allowed.shape[1], -1, np.int64)  # slot of the root at hand on each device
    slots = 0
    for root in range(len(tables.root_bytes)):
        origin = slots
        for row in range(tables.root_ptr[root], tables.root_ptr[root + 1]):
            here = device[tables.root_touch_op[row]]
            if newest[here] < origin:
                newest[here] = slots
                holds[slots] = 0
                size[slots] = 0
                live[slots] = 0
                slots += 1
            slot = np.uint32(newest[here])
            holds[slot] += 1
            slot_of[tables.root_touch[row]] = slot
        size[origin] = tables.root_bytes[root]
        live[origin] = 1  # its op allocates it, before any copy can come back
    for touch in tables.result_touch:
        holds[slot_of[touch]] += 1


@numba.njit(cache=True, nogil=True)
@no_type_check
def address_messages(tables, device, scratch, steps, sample):
    """The messages of every op, by output (control first) and then by device, each with the list of its consumers."""
    edge_dst, edge_data, out_ptr = tables.delays.edge_dst, tables.delays.edge_data, tables.delays.out_ptr
    behind, message_edge = scratch.behind, scratch.message_edge
    num_devices, transfer_ns = tables.allowed.shape[1], tables.delays.transfer_ns
    consumer = np.full(num_devices, NOTHING, np.uint32)
    found = np.empty(num_devices, np.uint32)
    messages, transfers, transferred, linked = 0, 0, 0, True
    for op in range(len(device)):
        here = device[op]
        local = NOTHING
        scratch.message_ptr[op] = messages
        edge, end = out_ptr[op], out_ptr[op + 1]
        while edge < end:
            output, count = edge_data[edge], 0
            while edge < end and edge_data[edge] == output:
                there = device[edge_dst[edge]]
                if there == here:
                    behind[edge] = local
                    local = edge
                else:
                    if consumer[there] == NOTHING:
                        place = count
                        while place > 0 and found[place - 1] > there:
                            found[place] = found[place - 1]
                            place -= 1
                        found[place] = there
                        count += 1
                    behind[edge] = consumer[there]
                    consumer[there] = edge
                edge += 1
            for place in range(count):
                there = found[place]
                link = tables.delays.link_index[here, there]
                linked &= link != NO_LINK
                message_edge[messages] = consumer[there]
                scratch.message_link[messages] = link
                slot = NOTHING
                if output != NOTHING:
                    sent = tables.output_bytes[output]
                    slot = scratch.slot_of[tables.edge_touch[consumer[there]]]
                    if scratch.live[slot] == 0 and scratch.size[slot] < sent:
                        scratch.size[slot] = sent
                    transfers += 1
                    transferred += sent
                    if link != NO_LINK:
                        scratch.message_ns[messages] = transfer_ns[output, tables.delays.link_rate[link]]
                        scratch.message_source[messages] = scratch.slot_of[tables.output_touch[output]]
                scratch.message_slot[messages] = slot
                messages += 1
                consumer[there] = NOTHING
        scratch.local[op] = local
    scratch.message_ptr[len(device)] = messages
    steps.transfers[sample] = transfers
    steps.transferred_bytes[sample] = transferred
    steps.linked[sample] = linked


@numba.njit(cache=True, nogil=True)
@no_type_check
def run_events(tables, device, priority, scratch, steps, trace, sample):
    """Lets time run: at each `now` what ends and arrives, then channels start, then devices start."""
    # unpacked once: the loop below reads them all
    edge_dst, time_ns, latency_ns = tables.delays.edge_dst, tables.delays.time_ns, tables.delays.link_latency_ns
    link_src, link_dst, link_channel, streams = tables.link_src, tables.link_dst, tables.link_channel, tables.streams
    start_bytes, workspace_bytes, touch_ptr = tables.start_bytes, tables.workspace_bytes, tables.touch_ptr
    slot_of, holds, size, live = scratch.slot_of, scratch.holds, scratch.size, scratch.live
    local, behind, message_ptr, message_edge = scratch.local, scratch.behind, scratch.message_ptr, scratch.message_edge
    message_link, message_slot, message_source = scratch.message_link, scratch.message_slot, scratch.message_source
    message_ns, message_next = scratch.message_ns, scratch.message_next
    missing, ready_ns, first_row = scratch.missing, scratch.ready_ns, scratch.first_row
    num_ops, num_devices, num_channels = len(device), len(streams), tables.num_channels
    peak = steps.peak_memory_bytes[sample]
    memory = peak.copy()

    # three heaps a device: (ready time, op) not ready yet; (priority, order of readiness) ready; (end, op) running
    (pending_a, pending_b), num_pending = scratch.queues[0], np.zeros(num_devices, np.int64)
    (ready_a, ready_b), num_ready = scratch.queues[1], np.zeros(num_devices, np.int64)
    (running_a, running_b), num_running = scratch.queues[2], np.zeros(num_devices, np.int64)
    next_ns = np.full(num_devices + num_channels, NEVER, np.int64)
    carried = np.full(num_channels, NOTHING, np.uint32)
    head, tail = np.full(num_channels, NOTHING, np.uint32), np.full(num_channels, NOTHING, np.uint32)
    woken = np.empty(2 * num_channels, np.uint32)
    ended = np.empty(num_ops, np.uint32)
    transfers = 0

    missing[:] = tables.num_inputs
    ready_ns[:] = 0
    for first in range(num_ops):
        if missing[first] == 0:
            here = device[first]
            push(ready_a, ready_b, first_row[here], num_ready[here], ~priority[first], num_ready[here] << 32 | first)
            num_ready[here] += 1
            next_ns[here] = 0
    num_seen = num_ready.copy()

    while True:
        now = NEVER
        for source in range(num_devices + num_channels):
            now = min(now, next_ns[source])
        if now == NEVER:
            break

        # 1. what ends or arrives
        num_woken = 0
        for channel in range(num_channels):
            if next_ns[num_devices + channel] != now:
                continue
            message = carried[channel]
            link = message_link[message]
            there = link_dst[link]
            slot = message_source[message]
            holds[slot] -= 1
            if holds[slot] == 0:
                memory[link_src[link]] -= size[slot]
            arrival = now + latency_ns[link]
            edge = message_edge[message]
            while edge != NOTHING:
                dst = edge_dst[edge]
                ready_ns[dst] = max(ready_ns[dst], arrival)
                missing[dst] -= 1
                if missing[dst] == 0:
                    push(pending_a, pending_b, first_row[there], num_pending[there], ready_ns[dst], dst)
                    num_pending[there] += 1
                    if num_running[there] < streams[there]:
                        next_ns[there] = min(next_ns[there], ready_ns[dst])
                edge = behind[edge]
            carried[channel] = NOTHING
            next_ns[num_devices + channel] = NEVER
            woken[num_woken] = channel
            num_woken += 1

        num_ended = 0
        for here in range(num_devices):
            if next_ns[here] != now:
                continue
            row = first_row[here]
            while num_running[here] > 0 and running_a[row] == now:
                op = np.uint32(running_b[row])
                pop(running_a, running_b, row, num_running[here])
                num_running[here] -= 1
                place = num_ended
                while place > 0 and ended[place - 1] > op:
                    ended[place] = ended[place - 1]
                    place -= 1
                ended[place] = op
                num_ended += 1

        for place in range(num_ended):
            op = ended[place]
            here = device[op]
            edge = local[op]
            while edge != NOTHING:
                dst = edge_dst[edge]
                ready_ns[dst] = max(ready_ns[dst], now)
                missing[dst] -= 1
                if missing[dst] == 0:
                    push(pending_a, pending_b, first_row[here], num_pending[here], ready_ns[dst], dst)
                    num_pending[here] += 1
                edge = behind[edge]
            for message in range(message_ptr[op], message_ptr[op + 1]):
                link = message_link[message]
                if message_slot[message] == NOTHING:
                    there = link_dst[link]
                    edge = message_edge[message]
                    arrival = now + max(1, latency_ns[link])
                    while edge != NOTHING:
                        dst = edge_dst[edge]
                        ready_ns[dst] = max(ready_ns[dst], arrival)
                        missing[dst] -= 1
                        if missing[dst] == 0:
                            push(pending_a, pending_b, first_row[there], num_pending[there], ready_ns[dst], dst)
                            num_pending[there] += 1
                            if num_running[there] < streams[there]:
                                next_ns[there] = min(next_ns[there], ready_ns[dst])
                        edge = behind[edge]
                else:
                    holds[message_source[message]] += 1
                    channel = link_channel[link]
                    message_next[message] = NOTHING
                    if head[channel] == NOTHING:
                        head[channel] = message
                        if carried[channel] == NOTHING:
                            woken[num_woken] = channel
                            num_woken += 1
                    else:
                        message_next[tail[channel]] = message
                    tail[channel] = message
            memory[here] -= workspace_bytes[op]
            for touch in range(touch_ptr[op], touch_ptr[op + 1]):
                slot = slot_of[touch]
                holds[slot] -= 1
                if holds[slot] == 0:
                    memory[here] -= size[slot]

        # 2. idle channels start the first of their queues
        for place in range(num_woken):
            channel = woken[place]
            message = head[channel]
            if carried[channel] != NOTHING or message == NOTHING:
                continue
            head[channel] = message_next[message]
            carried[channel] = message
            next_ns[num_devices + channel] = now + message_ns[message]
            slot = message_slot[message]
            if live[slot] == 0:
                live[slot] = 1
                there = link_dst[message_link[message]]
                memory[there] += size[slot]
                peak[there] = max(peak[there], memory[there])
            if len(trace.start_ns) > 0:
                link, output = message_link[message], tables.delays.edge_data[message_edge[message]]
                entry = trace.transfer[sample, transfers]
                entry[0], entry[1], entry[2] = output, link_src[link], link_dst[link]
                entry[3], entry[4] = now, next_ns[num_devices + channel]
                transfers += 1

        # 3. devices start ready ops while they have an idle stream
        for here in range(num_devices):
            if next_ns[here] != now:
                continue
            row = first_row[here]
            while num_pending[here] > 0 and pending_a[row] <= now:
                op = np.uint32(pending_b[row])
                pop(pending_a, pending_b, row, num_pending[here])
                num_pending[here] -= 1
                push(ready_a, ready_b, row, num_ready[here], ~priority[op], num_seen[here] << 32 | op)
                num_ready[here] += 1
                num_seen[here] += 1
            while num_ready[here] > 0 and num_running[here] < streams[here]:
                op = np.uint32(ready_b[row] & 0xFFFFFFFF)
                pop(ready_a, ready_b, row, num_ready[here])
                num_ready[here] -= 1
                push(running_a, running_b, row, num_running[here], now + time_ns[op, here], op)
                num_running[here] += 1
                memory[here] += start_bytes[op]
                if len(trace.start_ns) > 0:
                    trace.start_ns[sample, op] = now
            peak[here] = max(peak[here], memory[here])
            following = running_a[row] if num_running[here] > 0 else NEVER
            if num_pending[here] > 0 and num_running[here] < streams[here]:
                following = min(following, pending_a[row])
            next_ns[here] = following
        steps.step_time_ns[sample] = now


@numba.njit(cache=True, nogil=True)
@no_type_check
def push(first, second, at, size, a, b):
    """Adds (a, b) to the heap of `size` pairs in rows `at..`."""
    row = size
    while row > 0:
        parent = (row - 1) >> 1
        here, above = np.uint32(at + row), np.uint32(at + parent)
        if first[above] < a or (first[above] == a and second[above] < b):
            break
        first[here], second[here] = first[above], second[above]
        row = parent
    here = np.uint32(at + row)
    first[here], second[here] = a, b


@numba.njit(cache=True, nogil=True)
@no_type_check
def pop(first, second, at, size):
    """Removes the smallest pair, which the caller has read in row `at`, from the heap of `size` pairs."""
    last, row, child = size - 1, 0, 1
    while child < last:  # down to a leaf by the smaller child: which one it is can't be predicted, so it is added, not branched on
        left, right = np.uint32(at + child), np.uint32(at + child + 1)
        child += second[right] < second[left] if first[left] == first[right] else first[right] < first[left]
        here, below = np.uint32(at + row), np.uint32(at + child)
        first[here], second[here] = first[below], second[below]
        row, child = child, 2 * child + 1
    end = np.uint32(at + last)
    push(first, second, at, row, first[end], second[end])  # then up with the last pair, mostly by no step
