"""The simulated step, compiled: docs/execution-model.md to the nanosecond and the byte, for many placements.

The file has over 400 lines because a step is one idea: its functions share one working memory, and each of them is a
rule of the execution model that makes sense only beside the others. `run_events` is one long function because the event
loop reads and writes most of its state, as local variables, in every rule.

The setup of a step takes time linear in ops, edges and buffers. Then the step runs event by event. All times and sizes
are integers, and the result does not depend on the number of threads.

- A *root* is an output that owns a buffer; an alias shares the buffer of its root.
- A *slot* is the buffer of one root on one device. A *touch* is a pair (op, root) where the op consumes or produces the
  root. An op holds the slots of its touches until it ends.
- A device may keep parts of one root in separate buffers (`received`). A slot may then belong to a part, and an alias
  lies in the slot of the output that it names.
- A *message* is an output on its way to one other device. It exists from the end of its op, and it waits in the queue
  of a channel.
- A message occupies the channel of its link and then, if the link has one, its receive channel.
- An *event source* is a device (`0..D-1`) or a channel (after the devices). `next_ns` is the time of its next event, or
  `NEVER`.
- A device may itself be a channel. A transfer then occupies one of its streams and goes before every ready op. Where no
  stream is idle, the transfer waits for one.
- An op that starts while another device with the same memory runs an op takes its contended time. The other op keeps
  its time. Of two ops that start at the same time, the one on the later device takes its contended time.
- Under the schedule `in-order` a sample has a `sequence`: all ops by priority. A device starts the next of its ops, or
  none, and not before the op before it has ended.
- A step stops early once it can't end by its limit: the ops that a device has not started are a lower bound on the time
  it still needs.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gnnplace.cluster import NO_LINK
from gnnplace.compiled import kernel, part
from gnnplace.schedules.ranks import NOTHING

NEVER = 2**63 - 1
STUCK = NEVER - 1  # the step time of an order in which devices wait for one another forever
NO_LIMIT = 2**62


@intrinsic
@no_type_check
def prefetch(context, array, row):
    """Requests the cache line of a row that is read soon, without waiting for it.

    A row that does not exist is harmless.
    """

    def emit(context, builder, signature, values):
        rows = context.make_array(signature.args[0])(context, builder, values[0])
        offset = builder.mul(values[1], builder.extract_value(rows.strides, 0))
        address = builder.gep(builder.bitcast(rows.data, ir.IntType(8).as_pointer()), [offset])
        word = ir.IntType(32)
        request = ir.FunctionType(ir.VoidType(), [address.type, word, word, word])
        to_read, to_keep, is_data = word(0), word(3), word(1)
        builder.call(
            builder.module.declare_intrinsic("llvm.prefetch", [address.type], request),
            [address, to_read, to_keep, is_data],
        )
        return context.get_dummy_value()

    return types.void(array, types.uint64), emit


@kernel
@no_type_check
def simulate_rows(tables, device, priority, sequence, limit_ns, scratch, steps, trace):
    """Simulates every row of `device`, in order if the rows of `sequence` have ops.

    Writes one row of `steps` each, and of `trace` if it has rows; `run_events` explains the limit.
    """
    for sample in range(len(device)):
        clear_slots(tables, device[sample], scratch.slots)
        if tables.apart:
            find_slots(tables, device[sample], scratch.own_slot, scratch.touch_slot)
        place_ops(tables, device[sample], priority[sample], scratch, steps, sample)
        if steps.linked[sample]:
            run_events(tables, sequence[sample], limit_ns, scratch, steps, trace, sample)


@part
@no_type_check
def clear_slots(tables, device, slots):
    """Resets every slot to empty and held by no one, then sets the size of
    the slots on the devices that produce their roots.
    """
    num_devices = np.uint32(len(tables.streams))
    for row in range(len(slots)):
        slot = slots[row]
        slot.size, slot.holds, slot.live = 0, 0, 0
    held = tables.buffers
    for root in range(len(held.root_op)):
        slot = slots[np.uint32(root * num_devices + device[held.root_op[root]])]
        slot.size, slot.live = held.root_bytes[root], 1  # its op allocates it before any copy can come back


@part
@no_type_check
def find_slots(tables, device, own_slot, touch_slot):
    """The slot of each output on its op's device, and the slot of each touch.

    An alias shares the slot of the output it names, whether this device produced or received that output.
    """
    held, num_devices = tables.buffers, np.uint32(len(tables.streams))
    for output in range(len(own_slot)):
        own_slot[output] = output * num_devices + device[held.output_op[output]]
    for place in range(len(held.alias)):
        output, named = held.alias[place], held.alias_of[place]
        here = device[held.output_op[output]]
        own_slot[output] = (
            own_slot[named] if device[held.output_op[named]] == here else received_slot(tables, named, here)
        )
    for op in range(len(device)):
        here = device[op]
        for touch in range(held.touch_ptr[op], held.touch_ptr[op + 1]):
            output = held.touch_root[touch]
            touch_slot[touch] = (
                own_slot[output] if device[held.output_op[output]] == here else received_slot(tables, output, here)
            )


@part
@no_type_check
def slots_of_touches(tables, scratch):
    """Returns `touched`, a and b: the slot of a touch on device d is `touched[touch] * a + d * b`."""
    touched, per_root, per_device = tables.buffers.touch_root, np.uint32(len(tables.streams)), np.uint32(1)
    if tables.apart:
        touched, per_root, per_device = scratch.touch_slot, np.uint32(1), np.uint32(0)
    return touched, per_root, per_device


@part
@no_type_check
def received_slot(tables, output, there):
    """The slot of an output on a device that receives it."""
    number = output
    if tables.received[there] < 2:
        number = (
            tables.buffers.output_part[output] if tables.received[there] == 1 else tables.buffers.output_root[output]
        )
    return np.uint32(number * np.uint32(len(tables.streams)) + there)


@part
@no_type_check
def place_ops(tables, device, priority, scratch, steps, sample):
    """Sets the device and times of each op, counts the holders of each slot,
    and fills all of `steps` that is known before the events.
    """
    ops, slots, first_row = scratch.ops, scratch.slots, scratch.first_row
    edges, link_index, held = tables.delays.edges, tables.delays.link_index, tables.buffers
    num_devices = np.uint32(len(tables.streams))
    busy, memory = steps.busy_ns[sample], steps.peak_memory_bytes[sample]
    touched, per_root, per_device = slots_of_touches(tables, scratch)
    newest = np.full(num_devices, NOTHING, np.uint32)  # the last output found so far that goes to each device
    first_row[:] = 0
    busy[:] = 0
    memory[:] = 0
    legal, linked, transfers, transferred = True, True, 0, 0
    for op in range(len(ops)):
        here, state = device[op], ops[op]
        state.device, state.time_ns, state.priority = here, tables.delays.time_ns[op, here], priority[op]
        state.missing, state.ready_ns = tables.num_inputs[op], 0
        state.start_bytes, state.workspace_bytes = tables.start_bytes[op], tables.workspace_bytes[op]
        state.edge, state.edge_end = tables.delays.out_ptr[op], tables.delays.out_ptr[op + 1]
        state.touch, state.touch_end = held.touch_ptr[op], held.touch_ptr[op + 1]
        first_row[here + 1] += 1
        busy[here] += state.time_ns
        memory[here] += tables.persistent_bytes[op]
        legal &= tables.allowed[op, here] and device[tables.leader[op]] == here
        for touch in range(state.touch, state.touch_end):
            slots[np.uint32(touched[touch] * per_root + here * per_device)].holds += 1
        for edge in range(state.edge, state.edge_end):
            there, output = device[edges[edge].dst], edges[edge].output
            if there != here:
                linked &= link_index[here, there] != NO_LINK
                if output != NOTHING and newest[there] != output:
                    newest[there] = output
                    size, slot = held.output_bytes[output], slots[received_slot(tables, output, there)]
                    if slot.live == 0 and slot.size < size:
                        slot.size = size
                    transfers += 1
                    transferred += size
    for result in range(len(held.result_op)):
        root = held.result_root[result]
        slots[
            scratch.own_slot[root] if tables.apart else np.uint32(root * num_devices + device[held.result_op[result]])
        ].holds += 1
    for d in range(num_devices):
        first_row[d + 1] += first_row[d]
    steps.legal[sample], steps.linked[sample] = legal, linked
    steps.transfers[sample], steps.transferred_bytes[sample] = transfers, transferred


@part
@no_type_check
def run_events(tables, sequence, limit_ns, scratch, steps, trace, sample):
    """Runs the events in order of time. At each time, ops and transfers end first, then channels start transfers, then
    devices start ops.

    A step that turns out to last longer than the limit stops and gets the step time `NEVER`; one without an end gets
    `STUCK`.
    """
    # unpacked once, because the loop below reads them all
    edges, transfer_ns, latency_ns = tables.delays.edges, tables.delays.transfer_ns, tables.delays.link_latency_ns
    link_index, link_rate, link_channel = tables.delays.link_index, tables.delays.link_rate, tables.link_channel
    link_src, link_dst, output_root, apart = tables.link_src, tables.link_dst, tables.buffers.output_root, tables.apart
    ops, slots, messages, behind, first_row = (
        scratch.ops,
        scratch.slots,
        scratch.messages,
        scratch.behind,
        scratch.first_row,
    )
    streams, device_channel, channel_device = tables.streams, tables.device_channel, tables.channel_device
    link_receive_channel = tables.link_receive_channel
    touched, per_root, per_device = slots_of_touches(tables, scratch)
    device_memory, contended_ns, busy = tables.device_memory, tables.contended_ns, steps.busy_ns[sample]
    num_devices, num_channels = np.uint32(len(streams)), tables.num_channels
    peak, occupied = steps.peak_memory_bytes[sample], steps.occupied_ns[sample]
    memory = peak.copy()
    # the latest start of an op on each device if the step is to end by the limit
    latest_ns = limit_ns - (busy + streams - 1) // streams
    occupied[:] = 0

    # three heaps per device: pending ops by (ready time, op), ready ops by (priority, order of readiness), running ops
    # by (end, op)
    pending, num_pending = scratch.queues[0], np.zeros(num_devices, np.int64)
    ready, num_ready = scratch.queues[1], np.zeros(num_devices, np.int64)
    running, num_running = scratch.queues[2], np.zeros(num_devices, np.int64)
    next_ns = np.full(num_devices + num_channels, NEVER, np.int64)
    carried = np.full(num_channels, NOTHING, np.uint32)
    head, tail = np.full(num_channels, NOTHING, np.uint32), np.full(num_channels, NOTHING, np.uint32)
    consumer = np.full(num_devices, NOTHING, np.uint32)  # the first edge of the current output to each device ...
    targets = np.empty(num_devices, np.uint32)  # ... and the other devices it goes to, in order
    woken = np.empty(3 * num_channels, np.uint32)
    ended = np.empty(len(ops), np.uint32)
    sent, transfers = np.uint32(0), 0
    strict, turn, started = len(sequence) > 0, np.zeros(num_devices, np.int64), 0

    for first in range(len(ops)):
        state = ops[first]
        if state.missing == 0:
            here = state.device
            push(ready, first_row[here], num_ready[here], ~state.priority, num_ready[here] << 32 | first)
            num_ready[here] += 1
            next_ns[here] = 0
    num_seen = num_ready.copy()

    while True:
        now = NEVER
        for source in range(num_devices + num_channels):
            now = min(now, next_ns[source])
        if now == NEVER:
            break

        # 1. transfers and ops end
        num_woken = 0
        for channel in range(num_channels):
            if next_ns[num_devices + channel] != now:
                continue
            at = carried[channel]
            message = messages[at]
            link, receiving = message.link, np.uint32(NOTHING)
            if message.from_slot != NOTHING:
                slot = slots[message.from_slot]
                slot.holds -= 1
                if slot.holds == 0:
                    memory[link_src[link]] -= slot.size
                message.from_slot = NOTHING
                receiving = link_receive_channel[link]
            if receiving == NOTHING:
                there, arrival = link_dst[link], now + latency_ns[link]
                earliest = deliver(
                    ops, edges, touched, behind, message.edge, arrival, pending, first_row[there], num_pending, there
                )
                if num_running[there] < streams[there]:
                    next_ns[there] = min(next_ns[there], earliest)
            else:
                message.next = NOTHING
                if head[receiving] == NOTHING:
                    head[receiving] = at
                    if carried[receiving] == NOTHING:
                        woken[num_woken] = receiving
                        num_woken += 1
                else:
                    messages[tail[receiving]].next = at
                tail[receiving] = at
            carried[channel] = NOTHING
            next_ns[num_devices + channel] = NEVER
            woken[num_woken] = channel
            num_woken += 1

        num_ended = 0
        for here in range(num_devices):
            if next_ns[here] != now:
                continue
            row = first_row[here]
            while num_running[here] > 0 and running[row].a == now:
                op = np.uint32(running[row].b)
                pop(running, row, num_running[here])
                num_running[here] -= 1
                place = num_ended
                while place > 0 and ended[place - 1] > op:
                    ended[place] = ended[place - 1]
                    place -= 1
                ended[place] = op
                num_ended += 1
            own_channel = device_channel[here]
            if own_channel != NOTHING and head[own_channel] != NOTHING and carried[own_channel] == NOTHING:
                woken[num_woken] = own_channel
                num_woken += 1

        for place in range(num_ended):
            state = ops[ended[place]]
            here, edge, end = state.device, state.edge, state.edge_end
            while edge < end:
                output, count = edges[edge].output, 0
                while edge < end and edges[edge].output == output:
                    there = ops[edges[edge].dst].device
                    if there != here and consumer[there] == NOTHING:
                        spot = count
                        while spot > 0 and targets[spot - 1] > there:
                            targets[spot] = targets[spot - 1]
                            spot -= 1
                        targets[spot] = there
                        count += 1
                    behind[edge] = consumer[there]
                    consumer[there] = edge
                    edge += 1
                deliver(ops, edges, touched, behind, consumer[here], now, pending, first_row[here], num_pending, here)
                consumer[here] = NOTHING
                for spot in range(count):
                    there = targets[spot]
                    link = link_index[here, there]
                    if output == NOTHING:
                        arrival = now + max(1, latency_ns[link])
                        earliest = deliver(
                            ops,
                            edges,
                            touched,
                            behind,
                            consumer[there],
                            arrival,
                            pending,
                            first_row[there],
                            num_pending,
                            there,
                        )
                        if num_running[there] < streams[there]:
                            next_ns[there] = min(next_ns[there], earliest)
                    else:
                        message, root = messages[sent], output_root[output] * num_devices
                        message.time_ns, message.edge, message.link = (
                            transfer_ns[output, link_rate[link]],
                            consumer[there],
                            link,
                        )
                        message.from_slot, message.to_slot, message.next = root + here, root + there, NOTHING
                        if apart:
                            message.from_slot, message.to_slot = (
                                scratch.own_slot[output],
                                received_slot(tables, output, there),
                            )
                        slots[message.from_slot].holds += 1
                        channel = link_channel[link]
                        if head[channel] == NOTHING:
                            head[channel] = sent
                            if carried[channel] == NOTHING:
                                woken[num_woken] = channel
                                num_woken += 1
                        else:
                            messages[tail[channel]].next = sent
                        tail[channel] = sent
                        sent = np.uint32(sent + 1)
                    consumer[there] = NOTHING
            memory[here] -= state.workspace_bytes
            for touch in range(state.touch, state.touch_end):
                slot = slots[np.uint32(touched[touch] * per_root + here * per_device)]
                slot.holds -= 1
                if slot.holds == 0:
                    memory[here] -= slot.size

        # 2. idle channels start the first transfer of their queues
        for place in range(num_woken):
            channel = woken[place]
            at = head[channel]
            if carried[channel] != NOTHING or at == NOTHING:
                continue
            here = channel_device[channel]
            if here != NOTHING:
                if num_running[here] == streams[here]:
                    continue
                next_ns[here] = now
            message = messages[at]
            link = message.link
            head[channel] = message.next
            carried[channel] = at
            next_ns[num_devices + channel] = now + message.time_ns
            occupied[channel] += message.time_ns
            slot = slots[message.to_slot]
            if slot.live == 0:
                slot.live = 1
                there = link_dst[link]
                memory[there] += slot.size
                peak[there] = max(peak[there], memory[there])
            if len(trace.start_ns) > 0:
                if message.from_slot == NOTHING:
                    entry = trace.transfer[sample, message.entry]
                    entry[5], entry[6] = now, next_ns[num_devices + channel]
                else:
                    message.entry = transfers
                    entry = trace.transfer[sample, transfers]
                    entry[0], entry[1], entry[2] = edges[message.edge].output, link_src[link], link_dst[link]
                    entry[3], entry[4], entry[5], entry[6] = now, next_ns[num_devices + channel], -1, -1
                    transfers += 1

        # 3. devices start ready ops on their idle streams
        for here in range(num_devices):
            if next_ns[here] != now:
                continue
            row, own_channel = first_row[here], device_channel[here]
            for_ops, following = streams[here], NEVER
            if own_channel != NOTHING and carried[own_channel] != NOTHING:
                for_ops, following = for_ops - 1, next_ns[num_devices + own_channel]
            while num_pending[here] > 0 and pending[row].a <= now:
                op = np.uint32(pending[row].b)
                pop(pending, row, num_pending[here])
                num_pending[here] -= 1
                push(ready, row, num_ready[here], ~ops[op].priority, num_seen[here] << 32 | op)
                num_ready[here] += 1
                num_seen[here] += 1
            while num_ready[here] > 0 and num_running[here] < for_ops:
                op = np.uint32(ready[row].b & 0xFFFFFFFF)
                if strict:
                    while ops[sequence[turn[here]]].device != here:
                        turn[here] += 1
                    if num_running[here] > 0 or op != sequence[turn[here]]:
                        break
                    turn[here] += 1
                started += 1
                pop(ready, row, num_ready[here])
                num_ready[here] -= 1
                state = ops[op]
                if now > latest_ns[here]:
                    steps.step_time_ns[sample] = NEVER
                    return
                latest_ns[here] += state.time_ns
                end = now + state.time_ns
                if device_memory[here] != NOTHING:
                    for other in range(num_devices):
                        if other != here and device_memory[other] == device_memory[here] and num_running[other] > 0:
                            end = now + contended_ns[op, here]
                    busy[here] += end - now - state.time_ns
                push(running, row, num_running[here], end, op)
                num_running[here] += 1
                memory[here] += state.start_bytes
                for edge in range(state.edge, state.edge_end):  # read when the op ends
                    prefetch(ops, edges[edge].dst)
                    prefetch(transfer_ns, edges[edge].output)
                for touch in range(state.touch, state.touch_end):
                    prefetch(slots, touched[touch] * per_root + here * per_device)
                if len(trace.start_ns) > 0:
                    trace.start_ns[sample, op], trace.end_ns[sample, op] = now, end
            if num_ready[here] > 2:  # read by the next start and the one after it
                expected = ops[np.uint32(ready[row].b & 0xFFFFFFFF)]
                prefetch(edges, expected.edge)
                prefetch(touched, expected.touch)
                prefetch(ops, ready[np.uint32(row + 1)].b & 0xFFFFFFFF)
                prefetch(ops, ready[np.uint32(row + 2)].b & 0xFFFFFFFF)
            peak[here] = max(peak[here], memory[here])
            if num_running[here] > 0:
                following = min(following, running[row].a)
            if num_pending[here] > 0 and num_running[here] < for_ops:
                following = min(following, pending[row].a)
            next_ns[here] = following
        steps.step_time_ns[sample] = now
    if started < len(ops):
        steps.step_time_ns[sample] = STUCK


@part
@no_type_check
def deliver(ops, edges, touched, behind, edge, arrival, pending, row, num_pending, there):
    """Delivers an input to each consumer in the list that begins with `edge`.

    Consumers that have all their inputs join the pending ops of their device. Returns the earliest ready time among
    them, or `NEVER`.
    """
    earliest = NEVER
    while edge != NOTHING:
        dst = edges[edge].dst
        state = ops[dst]
        state.ready_ns = max(state.ready_ns, arrival)
        state.missing -= 1
        if state.missing == 0:
            push(pending, row, num_pending[there], state.ready_ns, dst)
            num_pending[there] += 1
            earliest = min(earliest, state.ready_ns)
            prefetch(edges, state.edge)  # read when the op starts
            prefetch(touched, state.touch)
        edge = behind[edge]
    return earliest


@part
@no_type_check
def push(heap, at, size, a, b):
    """Adds the pair (a, b) to the heap of `size` pairs that begins at row `at`."""
    row = size
    while row > 0:
        parent = (row - 1) >> 1
        here, above = heap[np.uint32(at + row)], heap[np.uint32(at + parent)]
        if above.a < a or (above.a == a and above.b < b):
            break
        here.a, here.b = above.a, above.b
        row = parent
    here = heap[np.uint32(at + row)]
    here.a, here.b = a, b


@part
@no_type_check
def pop(heap, at, size):
    """Removes the smallest pair from the heap of `size` pairs that begins at row `at`.

    The caller has read the pair already.
    """
    last, row, child = size - 1, 0, 1
    # down to a leaf along the smaller child, chosen without a branch: its direction is unpredictable
    while child < last:
        left, right = heap[np.uint32(at + child)], heap[np.uint32(at + child + 1)]
        child += right.b < left.b if left.a == right.a else right.a < left.a
        here, below = heap[np.uint32(at + row)], heap[np.uint32(at + child)]
        here.a, here.b = below.a, below.b
        row, child = child, 2 * child + 1
    end = heap[np.uint32(at + last)]
    push(heap, at, row, end.a, end.b)  # then the last pair moves up from there, mostly by no step
