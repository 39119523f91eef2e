"""The features of moves, by which a ranking predicts their gain before any of them is evaluated.

Features come from the timeline of the current placement. They are free of scale: shares of the step time, of memory, of
bytes, or counts of devices. They are local: only the moved ops and their neighbours change. No feature depends on op
kinds, graphs or planners by name.

The longest path through the moved ops after a move does not include waiting: an op starts when its last input arrives,
over links without queues, and everything before and after the moved ops takes as long as it did. Transfers before and
after a move are exact: an output goes once to each device that reads it.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Float32, Int32, Int64, UInt32

from gnnplace.compiled import allocates_nothing, kernel, part_allocates_nothing
from gnnplace.moves.carried import neighbours, transfers
from gnnplace.moves.columns import (
    CHAIN_LOCAL,
    CHAIN_MORE,
    CHAIN_QUEUE,
    CHAIN_SENT,
    CHAIN_WORK,
    DRAWN,
    LOG_OPS,
    NAMES,
    SHARE,
)
from gnnplace.moves.drawing import WALK, Drawn
from gnnplace.moves.loads import device_loads
from gnnplace.moves.neighbourhood import Terrain
from gnnplace.moves.paths import paths, times
from gnnplace.moves.situation import Situation


class WorkingMemory(NamedTuple):
    """Working memory. Entries of an op or output are valid if they have the current stamp, `stamp[0]`."""

    stamp: Int64[np.ndarray, " 1"]
    moved: Int64[np.ndarray, " ops"]  # the stamp of the last move of the op
    to: Int64[np.ndarray, " ops"]
    end_ns: Float[np.ndarray, " ops"]
    tail_ns: Float[np.ndarray, " ops"]
    outputs: UInt32[np.ndarray, " outputs"]
    touched: Int64[np.ndarray, " outputs"]  # the stamp of the last move that changes its readers
    more: Int32[np.ndarray, "outputs devices"]  # readers after the move minus readers before
    load_ns: Float[np.ndarray, " devices"]
    occupied_ns: Float[np.ndarray, " channels"]
    peak_bytes: Float[np.ndarray, " devices"]
    # the time of moved ops on the devices that they leave and on the devices that they join
    leaves_ns: Float[np.ndarray, " devices"]
    joins_ns: Float[np.ndarray, " devices"]
    window: Float[np.ndarray, "2 2 devices"]  # the first start and last end that is possible for them on both
    kinds: Float[np.ndarray, " 6"]


def work(terrain: Terrain) -> WorkingMemory:
    """Working memory for the features of one problem, of one thread at a time."""
    ops, (outputs, devices) = len(terrain.order), (len(terrain.output_op), terrain.delays.time_ns.shape[1])
    return WorkingMemory(
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


def features(
    terrain: Terrain, situation: Situation, drawn: Drawn, work: WorkingMemory
) -> Float32[np.ndarray, "moves features"]:
    """One row for each move, with the columns `NAMES` and `DRAWN`. A move that changes nothing has zeros."""
    rows = np.zeros((len(drawn.kind), len(NAMES) + len(DRAWN)), np.float32)
    _features(terrain, situation, drawn, *_moved_ops(terrain, drawn), work, rows)
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
def _features(terrain, situation, drawn, op_ptr, op, work, rows):
    load_ns, occupied_ns, peak_bytes = work.load_ns, work.occupied_ns, work.peak_bytes
    leaves_ns, joins_ns, window = work.leaves_ns, work.joins_ns, work.window
    for move in range(len(rows)):
        if drawn.ptr[move] == drawn.ptr[move + 1]:
            continue
        row = rows[move]
        _clear(work, situation)
        ops = op[op_ptr[move] : op_ptr[move + 1]]
        _mark(drawn, move, terrain, work)
        times(terrain, situation, work, ops, row, load_ns, peak_bytes, leaves_ns, joins_ns, window)
        paths(terrain, situation, work, ops, row, window)
        neighbours(terrain, situation, work, ops, row)
        transfers(terrain, situation, work, ops, row, occupied_ns)
        device_loads(terrain, situation, row, load_ns, occupied_ns, peak_bytes, leaves_ns, joins_ns, window)
        row[LOG_OPS], row[SHARE] = np.log10(len(ops)), len(ops) / len(situation.device)
        row[CHAIN_MORE] = row[CHAIN_WORK] + row[CHAIN_SENT] + row[CHAIN_QUEUE]
        row[CHAIN_LOCAL] = row[CHAIN_WORK] + row[CHAIN_SENT]
        first, second = drawn.kind[move]
        row[len(NAMES) + first] = 1
        row[len(NAMES) + WALK + 1] = max(1, drawn.blocks[move])
        row[len(NAMES) + WALK + 2], row[len(NAMES) + WALK + 3] = drawn.guided[move], first == second


@no_type_check
@part_allocates_nothing
def _clear(work, situation):
    """Sets the working memory to the loads of the placement without a move.

    Element by element: with a slice on the left, Numba compiles for six seconds longer (`gnnplace.compiled`).
    """
    for device in range(len(work.load_ns)):
        work.load_ns[device], work.peak_bytes[device] = situation.load_ns[device], situation.peak_bytes[device]
        work.leaves_ns[device] = work.joins_ns[device] = 0.0
        for side in range(2):
            work.window[side, 0, device], work.window[side, 1, device] = situation.step_ns, 0.0
    for channel in range(len(work.occupied_ns)):
        work.occupied_ns[channel] = situation.occupied_ns[channel]
    for kind in range(len(work.kinds)):
        work.kinds[kind] = 0.0


@no_type_check
@part_allocates_nothing
def _mark(drawn, move, terrain, work):
    """Marks the moved ops with a new stamp, and sets the devices to which they go."""
    work.stamp[0] += 1
    for at in range(drawn.ptr[move], drawn.ptr[move + 1]):
        unit = drawn.unit[at]
        for place in range(terrain.unit_ptr[unit], terrain.unit_ptr[unit + 1]):
            op = terrain.unit_op[place]
            work.moved[op], work.to[op] = work.stamp[0], drawn.device[at]
