"""What a timeline says of moves, before any of them is tried: the features by which a policy ranks them.

All features are free of scale: shares of the step time, of memory, of bytes, or counts of devices. They are local: what lies outside of the
moved ops and their neighbours stays as it is in the situation. No feature names an op kind, a graph or a planner.

The longest path through the moved ops after a move leaves out waiting: an op starts as its last input arrives, over links without queues,
and what precedes and follows the moved ops takes as long as it took. Transfers before and after are exact: an output goes once to each
device that reads it.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Float32, Int32, Int64, UInt32

from gnnplace.compiled import allocates_nothing, kernel
from gnnplace.moves.carried import lag_ns, neighbours, transfers
from gnnplace.moves.columns import (
    CHAIN,
    CHAIN_LOCAL,
    CHAIN_MORE,
    CHAIN_ON_DEVICE,
    CHAIN_QUEUE,
    CHAIN_SENT,
    CHAIN_SOURCE,
    CHAIN_TARGET,
    CHAIN_TRANSFERS,
    CHAIN_WORK,
    CHANNEL_AFTER,
    CHANNEL_BEFORE,
    DEVICES,
    DRAWN,
    FIRST_START,
    IDLE_BY_WORK,
    IDLE_SOURCE,
    IDLE_TARGET,
    LOAD_AFTER,
    LOAD_BEFORE,
    LOAD_SOURCE,
    LOAD_TARGET,
    LOAD_TARGET_AFTER,
    LOG_OPS,
    MEMORY_LEFT,
    NAMES,
    OVERFLOW_BEFORE,
    OVERFLOW_MORE,
    PATH_AFTER,
    PATH_BEFORE,
    PATH_BEYOND,
    SHARE,
    SLACK_LEAST,
    SLACK_MEAN,
    SOURCES,
    SPAN,
    SQUARES_MORE,
    START_LATER,
    TARGETS,
    UNLINKED,
    UTILISATION,
    WORK_AFTER,
    WORK_BEFORE,
    WORK_MORE,
    WORK_RATIO,
)
from gnnplace.moves.drawing import WALK, Drawn
from gnnplace.moves.neighbourhood import Terrain
from gnnplace.moves.situation import AT_ONCE, BLOCKS, ON_CHANNEL, ON_DEVICE, ON_INPUT, WINDOWS, Situation

MOST_IDLE = 4.0  # times the work


class Work(NamedTuple):
    """Working memory. What it has of an op or output counts where its stamp is the current one; the next stamp is `stamp[0] + 1`."""

    stamp: Int64[np.ndarray, " 1"]
    moved: Int64[np.ndarray, " ops"]  # its stamp
    to: Int64[np.ndarray, " ops"]
    end_ns: Float[np.ndarray, " ops"]
    tail_ns: Float[np.ndarray, " ops"]
    outputs: UInt32[np.ndarray, " outputs"]
    touched: Int64[np.ndarray, " outputs"]  # its stamp
    more: Int32[np.ndarray, "outputs devices"]  # readers after the move, less those before
    load_ns: Float[np.ndarray, " devices"]
    occupied_ns: Float[np.ndarray, " channels"]
    peak_bytes: Float[np.ndarray, " devices"]
    leaves_ns: Float[np.ndarray, " devices"]  # the time of moved ops on the devices that they leave, and on those that they join
    joins_ns: Float[np.ndarray, " devices"]
    window: Float[np.ndarray, "2 2 devices"]  # the begin and the end of when they run, or could, on both
    kinds: Float[np.ndarray, " 6"]


def work(terrain: Terrain) -> Work:
    """Working memory for the features of one problem, of one thread at a time."""
    ops, (outputs, devices) = len(terrain.order), (len(terrain.output_op), terrain.delays.time_ns.shape[1])
    return Work(
        stamp=np.zeros(1, np.int64),
        moved=np.zeros(ops, np.int64),
        to=np.zeros(ops, np.int64),
        end_ns=np.zeros(ops),
        tail_ns=np.zeros(ops),
        outputs=np.zeros(outputs, np.uint32),
        touched=np.zeros(outputs, np.int64),
        more=np.zeros((outputs, devices), np.int32),
        load_ns=np.zeros(devices),
        occupied_ns=np.zeros(terrain.num_channels),
        peak_bytes=np.zeros(devices),
        leaves_ns=np.zeros(devices),
        joins_ns=np.zeros(devices),
        window=np.zeros((2, 2, devices)),
        kinds=np.zeros(6),
    )


def features(terrain: Terrain, found: Situation, drawn: Drawn, work: Work) -> Float32[np.ndarray, "moves features"]:
    """One row for each move, with the columns `NAMES` and `DRAWN`. All are 0 where a move changes nothing."""
    rows = np.zeros((len(drawn.kind), len(NAMES) + len(DRAWN)), np.float32)
    _features(terrain, found, drawn, *_moved_ops(terrain, drawn), work, rows)
    return rows


@kernel
@no_type_check
def _moved_ops(terrain, drawn):
    """The ops of move m are `op[ptr[m]:ptr[m+1]]`, in topological order."""
    ptr, most = np.zeros(len(drawn.ptr), np.int64), 0
    for move in range(len(drawn.kind)):
        for unit in drawn.unit[drawn.ptr[move] : drawn.ptr[move + 1]]:
            most += terrain.unit_ptr[unit + 1] - terrain.unit_ptr[unit]
        ptr[move + 1] = most
    op, size = np.empty(most, np.uint32), 0
    for move in range(len(drawn.kind)):
        for unit in drawn.unit[drawn.ptr[move] : drawn.ptr[move + 1]]:
            for place in range(terrain.unit_ptr[unit], terrain.unit_ptr[unit + 1]):
                op[size] = terrain.position[terrain.unit_op[place]]
                size += 1
        op[ptr[move] : size].sort()
    for place in range(size):
        op[place] = terrain.order[op[place]]
    return ptr, op


@no_type_check
@allocates_nothing
def _features(terrain, found, drawn, op_ptr, op, work, rows):
    load_ns, occupied_ns, peak_bytes = work.load_ns, work.occupied_ns, work.peak_bytes
    leaves_ns, joins_ns, window = work.leaves_ns, work.joins_ns, work.window
    for move in range(len(rows)):
        if drawn.ptr[move] == drawn.ptr[move + 1]:
            continue
        row = rows[move]
        _reset(found, work)
        ops = op[op_ptr[move] : op_ptr[move + 1]]
        _mark(drawn, move, terrain, work)
        _times(terrain, found, work, ops, row, load_ns, peak_bytes, leaves_ns, joins_ns, window)
        _paths(terrain, found, work, ops, row, window)
        neighbours(terrain, found, work, ops, row)
        transfers(terrain, found, work, ops, row, occupied_ns)
        _devices(terrain, found, row, load_ns, occupied_ns, peak_bytes, leaves_ns, joins_ns, window)
        row[LOG_OPS], row[SHARE] = np.log10(len(ops)), len(ops) / len(found.device)
        row[CHAIN_MORE] = row[CHAIN_WORK] + row[CHAIN_SENT] + row[CHAIN_QUEUE]
        row[CHAIN_LOCAL] = row[CHAIN_WORK] + row[CHAIN_SENT]
        first, second = drawn.kind[move]
        row[len(NAMES) + first] = 1
        row[len(NAMES) + WALK + 1] = max(1, drawn.blocks[move])
        row[len(NAMES) + WALK + 2], row[len(NAMES) + WALK + 3] = drawn.guided[move], first == second


@no_type_check
@allocates_nothing
def _reset(found, work):
    """Devices and channels as they are without the move."""
    for device in range(len(work.load_ns)):
        work.load_ns[device], work.peak_bytes[device] = found.load_ns[device], found.peak_bytes[device]
        work.leaves_ns[device] = work.joins_ns[device] = 0.0
        for side in range(2):
            work.window[side, 0, device], work.window[side, 1, device] = found.step_ns, 0.0
    for channel in range(len(work.occupied_ns)):
        work.occupied_ns[channel] = found.occupied_ns[channel]
    for kind in range(len(work.kinds)):
        work.kinds[kind] = 0.0


@no_type_check
@allocates_nothing
def _mark(drawn, move, terrain, work):
    """Marks the moved ops with a new stamp and their devices."""
    work.stamp[0] += 1
    for at in range(drawn.ptr[move], drawn.ptr[move + 1]):
        unit = drawn.unit[at]
        for place in range(terrain.unit_ptr[unit], terrain.unit_ptr[unit + 1]):
            op = terrain.unit_op[place]
            work.moved[op], work.to[op] = work.stamp[0], drawn.device[at]


@no_type_check
@allocates_nothing
def _times(terrain, found, work, ops, row, load_ns, peak_bytes, leaves_ns, joins_ns, window):
    """How long the ops take before and after, and when; loads and bytes of devices; the chain; slack."""
    before_ns = after_ns = slack_ns = chain_work = chain_queue = 0.0
    least, first, last, path_ns = found.step_ns, found.step_ns, 0.0, 0.0
    kinds = work.kinds
    for op in ops:
        here, there = found.device[op], work.to[op]
        start, end = found.start_ns[op], found.end_ns[op]
        old_ns, new_ns = end - start, float(terrain.delays.time_ns[op, there])
        before_ns += old_ns
        after_ns += new_ns
        leaves_ns[here] += old_ns
        joins_ns[there] += new_ns
        load_ns[here] -= old_ns / terrain.streams[here]
        load_ns[there] += new_ns / terrain.streams[there]
        peak_bytes[here] -= terrain.held_bytes[op]
        peak_bytes[there] += terrain.held_bytes[op]
        for kind in range(6):
            kinds[kind] += found.chain_ns[op, kind]
        if found.chain_ns[op, ON_DEVICE] + found.chain_ns[op, ON_INPUT] > 0:
            chain_work += new_ns - old_ns
            if found.chain_ns[op, BLOCKS] > 0:
                chain_queue -= old_ns
        slack = found.step_ns - end - found.tail_ns[op]
        slack_ns += slack * old_ns
        least, first, last, path_ns = min(least, slack), min(first, start), max(last, end), max(path_ns, end + found.tail_ns[op])
        window[0, 0, here] = min(window[0, 0, here], found.ready_ns[op])
        window[0, 1, here] = max(window[0, 1, here], found.step_ns - found.tail_ns[op])
    step_ns = found.step_ns
    row[CHAIN] = (kinds[ON_DEVICE] + kinds[ON_INPUT] + kinds[ON_CHANNEL] + kinds[AT_ONCE]) / step_ns
    for kind in range(6):
        row[CHAIN_ON_DEVICE + kind] = kinds[kind] / step_ns
    row[WORK_BEFORE], row[WORK_AFTER], row[WORK_MORE] = before_ns / step_ns, after_ns / step_ns, (after_ns - before_ns) / step_ns
    row[WORK_RATIO] = np.log(after_ns / before_ns)
    row[SLACK_LEAST], row[SLACK_MEAN] = least / step_ns, slack_ns / before_ns / step_ns
    row[SPAN], row[FIRST_START], row[PATH_BEFORE] = (last - first) / step_ns, first / step_ns, path_ns / step_ns
    row[CHAIN_WORK], row[CHAIN_QUEUE] = chain_work / step_ns, chain_queue / step_ns


@no_type_check
@allocates_nothing
def _paths(terrain, found, work, ops, row, window):
    """The longest path through the moved ops after the move, and when they could run."""
    stamp, edges, step_ns = work.stamp[0], terrain.delays.edges, found.step_ns
    later = weight = 0.0
    unlinked = False
    for op in ops:
        there, ready = work.to[op], 0.0
        for at in range(terrain.in_ptr[op], terrain.in_ptr[op + 1]):
            edge = terrain.in_edge[at]
            source = terrain.edge_src[edge]
            moved = work.moved[source] == stamp
            lag = lag_ns(terrain, edges[edge].output, work.to[source] if moved else found.device[source], there)
            unlinked |= lag < 0
            ready = max(ready, (work.end_ns[source] if moved else found.end_ns[source]) + lag)
        work.end_ns[op] = ready + terrain.delays.time_ns[op, there]
        window[1, 0, there] = min(window[1, 0, there], ready)
        on_chain = found.chain_ns[op, ON_DEVICE] + found.chain_ns[op, ON_INPUT]
        later += (work.end_ns[op] - found.end_ns[op]) * on_chain
        weight += on_chain
    longest = 0.0
    for place in range(len(ops) - 1, -1, -1):
        op = ops[place]
        there, tail = work.to[op], 0.0
        for edge in range(terrain.delays.out_ptr[op], terrain.delays.out_ptr[op + 1]):
            reader = edges[edge].dst
            if work.moved[reader] == stamp:
                device, behind = work.to[reader], work.tail_ns[reader] + terrain.delays.time_ns[reader, work.to[reader]]
            else:
                device, behind = found.device[reader], found.tail_ns[reader] + found.end_ns[reader] - found.start_ns[reader]
            lag = lag_ns(terrain, edges[edge].output, there, device)
            unlinked |= lag < 0
            tail = max(tail, lag + behind)
        work.tail_ns[op] = tail
        longest = max(longest, work.end_ns[op] + tail)
        window[1, 1, there] = max(window[1, 1, there], step_ns - tail)
    row[PATH_AFTER], row[PATH_BEYOND], row[UNLINKED] = longest / step_ns, max(0.0, longest / step_ns - 1), unlinked
    row[START_LATER] = later / weight / step_ns if weight > 0 else 0.0


@no_type_check
@allocates_nothing
def _devices(terrain, found, row, load_ns, occupied_ns, peak_bytes, leaves_ns, joins_ns, window):
    """Loads, idle time, memory and the critical chain of the devices that the ops leave and join."""
    step_ns, num_devices, left, joined = found.step_ns, len(load_ns), _total(leaves_ns), _total(joins_ns)
    squares = over_before = over_after = 0.0
    memory_left, sources, targets = 1.0, 0, 0
    for device in range(num_devices):
        squares += load_ns[device] ** 2 - found.load_ns[device] ** 2
        over_before += max(0.0, found.peak_bytes[device] - terrain.memory_bytes[device]) / terrain.memory_bytes[device]
        over_after += max(0.0, peak_bytes[device] - terrain.memory_bytes[device]) / terrain.memory_bytes[device]
        if leaves_ns[device] > 0:
            share = leaves_ns[device] / left
            sources += 1
            row[LOAD_SOURCE] += share * found.load_ns[device] / step_ns
            row[CHAIN_SOURCE] += share * found.chain_load_ns[device] / step_ns
            row[IDLE_SOURCE] += share * _idle(found, device, window[0, 0, device], window[0, 1, device])[1]
        if joins_ns[device] > 0:
            share = joins_ns[device] / joined
            targets += 1
            row[LOAD_TARGET] += share * found.load_ns[device] / step_ns
            row[LOAD_TARGET_AFTER] += share * load_ns[device] / step_ns
            row[CHAIN_TARGET] += share * found.chain_load_ns[device] / step_ns
            idle_ns, idle = _idle(found, device, window[1, 0, device], window[1, 1, device])
            row[IDLE_BY_WORK] += share * min(MOST_IDLE, idle_ns / (joins_ns[device] + 1.0))
            row[IDLE_TARGET] += share * idle
            memory_left = min(memory_left, (terrain.memory_bytes[device] - peak_bytes[device]) / terrain.memory_bytes[device])
    row[LOAD_BEFORE], row[LOAD_AFTER] = _largest(found.load_ns) / step_ns, _largest(load_ns) / step_ns
    row[SQUARES_MORE] = squares / step_ns / step_ns
    if len(occupied_ns) > 0:
        row[CHANNEL_BEFORE], row[CHANNEL_AFTER] = _largest(found.occupied_ns) / step_ns, _largest(occupied_ns) / step_ns
    row[CHAIN_TRANSFERS] = 1 - _total(found.chain_load_ns) / step_ns
    row[MEMORY_LEFT], row[OVERFLOW_BEFORE], row[OVERFLOW_MORE] = memory_left, over_before, over_after - over_before
    row[SOURCES], row[TARGETS], row[DEVICES], row[UTILISATION] = (
        sources,
        targets,
        num_devices,
        _total(found.load_ns) / step_ns / num_devices,
    )


@no_type_check
@allocates_nothing
def _idle(found, device, first_ns, last_ns):
    """The idle time of a device in a window, and its share of the window."""
    if last_ns <= first_ns:
        return 0.0, 0.0
    idle_ns = last_ns - first_ns - (_worked(found, device, last_ns) - _worked(found, device, first_ns))
    return idle_ns, idle_ns / (last_ns - first_ns)


@no_type_check
@allocates_nothing
def _worked(found, device, time_ns):
    """The time that a device works until a time, linear within windows."""
    at = min(max(0.0, time_ns / found.step_ns * WINDOWS), float(WINDOWS))
    window = min(int(at), WINDOWS - 1)
    return found.busy_ns[device, window] + (at - window) * (found.busy_ns[device, window + 1] - found.busy_ns[device, window])


@no_type_check
@allocates_nothing
def _largest(values):
    most = values[0]
    for value in values:
        most = max(most, value)
    return most


@no_type_check
@allocates_nothing
def _total(values):
    total = 0.0
    for value in values:
        total += value
    return total
