"""The features of a move that concern times of moved ops and the longest path through them, before and after."""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from gnnplace.compiled import part_allocates_nothing
from gnnplace.moves.carried import lag_ns
from gnnplace.moves.columns import (
    CHAIN,
    CHAIN_ON_DEVICE,
    CHAIN_QUEUE,
    CHAIN_WORK,
    FIRST_START,
    PATH_AFTER,
    PATH_BEFORE,
    PATH_BEYOND,
    SLACK_LEAST,
    SLACK_MEAN,
    SPAN,
    START_LATER,
    UNLINKED,
    WORK_AFTER,
    WORK_BEFORE,
    WORK_MORE,
    WORK_RATIO,
)
from gnnplace.moves.situation import AT_ONCE, BLOCKS, ON_CHANNEL, ON_DEVICE, ON_INPUT


@no_type_check
@part_allocates_nothing
def times(terrain, situation, work, ops, row, load_ns, peak_bytes, leaves_ns, joins_ns, window):
    """Fills the features of the ops' times, of the chain and of slack; updates the loads and bytes of devices."""
    before_ns = after_ns = slack_ns = chain_work = chain_queue = 0.0
    least, first, last, path_ns = situation.step_ns, situation.step_ns, 0.0, 0.0
    kinds = work.kinds
    for op in ops:
        here, there = situation.device[op], work.to[op]
        start, end = situation.start_ns[op], situation.end_ns[op]
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
            kinds[kind] += situation.chain_ns[op, kind]
        if situation.chain_ns[op, ON_DEVICE] + situation.chain_ns[op, ON_INPUT] > 0:
            chain_work += new_ns - old_ns
            if situation.chain_ns[op, BLOCKS] > 0:
                chain_queue -= old_ns
        slack = situation.step_ns - end - situation.tail_ns[op]
        slack_ns += slack * old_ns
        least, first, last = min(least, slack), min(first, start), max(last, end)
        path_ns = max(path_ns, end + situation.tail_ns[op])
        window[0, 0, here] = min(window[0, 0, here], situation.ready_ns[op])
        window[0, 1, here] = max(window[0, 1, here], situation.step_ns - situation.tail_ns[op])
    step_ns = situation.step_ns
    row[CHAIN] = (kinds[ON_DEVICE] + kinds[ON_INPUT] + kinds[ON_CHANNEL] + kinds[AT_ONCE]) / step_ns
    for kind in range(6):
        row[CHAIN_ON_DEVICE + kind] = kinds[kind] / step_ns
    row[WORK_BEFORE], row[WORK_AFTER] = before_ns / step_ns, after_ns / step_ns
    row[WORK_MORE] = (after_ns - before_ns) / step_ns
    row[WORK_RATIO] = np.log(after_ns / before_ns)
    row[SLACK_LEAST], row[SLACK_MEAN] = least / step_ns, slack_ns / before_ns / step_ns
    row[SPAN], row[FIRST_START], row[PATH_BEFORE] = (last - first) / step_ns, first / step_ns, path_ns / step_ns
    row[CHAIN_WORK], row[CHAIN_QUEUE] = chain_work / step_ns, chain_queue / step_ns


@no_type_check
@part_allocates_nothing
def paths(terrain, situation, work, ops, row, window):
    """Fills the features of the longest path through the moved ops after the move, and the window of each target."""
    stamp, edges, step_ns = work.stamp[0], terrain.delays.edges, situation.step_ns
    later = weight = 0.0
    unlinked = False
    for op in ops:
        there, ready = work.to[op], 0.0
        for at in range(terrain.in_ptr[op], terrain.in_ptr[op + 1]):
            edge = terrain.in_edge[at]
            source = terrain.edge_src[edge]
            moved = work.moved[source] == stamp
            lag = lag_ns(terrain, edges[edge].output, work.to[source] if moved else situation.device[source], there)
            unlinked |= lag < 0
            ready = max(ready, (work.end_ns[source] if moved else situation.end_ns[source]) + lag)
        work.end_ns[op] = ready + terrain.delays.time_ns[op, there]
        window[1, 0, there] = min(window[1, 0, there], ready)
        on_chain = situation.chain_ns[op, ON_DEVICE] + situation.chain_ns[op, ON_INPUT]
        later += (work.end_ns[op] - situation.end_ns[op]) * on_chain
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
                device, behind = (
                    situation.device[reader],
                    situation.tail_ns[reader] + situation.end_ns[reader] - situation.start_ns[reader],
                )
            lag = lag_ns(terrain, edges[edge].output, there, device)
            unlinked |= lag < 0
            tail = max(tail, lag + behind)
        work.tail_ns[op] = tail
        longest = max(longest, work.end_ns[op] + tail)
        window[1, 1, there] = max(window[1, 1, there], step_ns - tail)
    row[PATH_AFTER], row[PATH_BEYOND], row[UNLINKED] = longest / step_ns, max(0.0, longest / step_ns - 1), unlinked
    row[START_LATER] = later / weight / step_ns if weight > 0 else 0.0
