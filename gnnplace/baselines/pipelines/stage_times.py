"""The time of a schedule over stages, pass by pass, and cuts that make it short: an estimate in microseconds.

Passes run in the order of the schedule and take the work of their stage; what one stage computes for another is sent
at the end of its pass, over the channels of the machine. So, unlike the bottleneck of the slowest stage, the estimate
knows warm-up and the end, chunks of a device of which one is small, and large tensors that cross a cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Int64

from gnnplace.baselines.pipelines.actions import Pipeline, Table
from gnnplace.baselines.pipelines.rows import StepPasses
from gnnplace.cluster import NO_LINK
from gnnplace.compiled import kernel
from gnnplace.graph import CONTROL, NONE
from gnnplace.problems import Problem
from gnnplace.units.units import Units, kept_bytes, persistent_bytes

KINDS = ("F", "B", "W", "BW")
OVERFLOW = 2.0**60  # the time of a step that overflows, and a byte a ns beyond
Bounds = Int64[np.ndarray, " bounds"]  # stage s has the places bounds[s] to before bounds[s + 1]


class RowTimes(NamedTuple):
    """A row of one micro-batch as sums before each cut, and the tensors that are read at other places than their own.

    `work_ns[k]` is that of pass k (forward, gradients of inputs, of weights), `once_ns` that of updates. `saved` are
    the bytes that a forward pass saves for the others, `held` those of state and summed gradients; `most[p]` is what
    the largest op of place p needs beyond. Tensor t is computed at `source[t]` in a pass `kind[t]` (0 forward, 1
    backward, 2 a gradient that is sent once, as a sum), read at the places `readers[reader_ptr[t]:reader_ptr[t + 1]]`,
    and sent in `sent_ns[t, rate]`.
    """

    work_ns: Float[np.ndarray, "3 cuts devices"]
    once_ns: Float[np.ndarray, "cuts devices"]
    saved: Float[np.ndarray, " cuts"]
    held: Float[np.ndarray, " cuts"]
    most: Float[np.ndarray, " places"]
    source: Int64[np.ndarray, " tensors"]
    kind: Int64[np.ndarray, " tensors"]
    reader_ptr: Int64[np.ndarray, " tensors_plus_1"]
    readers: Int64[np.ndarray, " reads"]
    sent_ns: Float[np.ndarray, "tensors rates"]


class LinkTable(NamedTuple):
    """The rate (or `NO_LINK`), the channel and the latency in ns from each device to each other."""

    rate: Int64[np.ndarray, "devices devices"]
    channel: Int64[np.ndarray, "devices devices"]
    latency_ns: Float[np.ndarray, "devices devices"]
    channels: int


class Actions(NamedTuple):
    """A table of actions as arrays; -1 where a row has ended."""

    kind: Int64[np.ndarray, "devices actions"]
    stage: Int64[np.ndarray, "devices actions"]
    copy: Int64[np.ndarray, "devices actions"]
    micro_batches: int


@dataclass(frozen=True, eq=False)
class StageEstimate:
    """Judges cuts of a row into the stages of a pipeline.

    `step_ns` says how long a step takes; where a device would hold more than a share of its memory, `OVERFLOW` and the
    largest excess in bytes.
    """

    pipeline: Pipeline
    times: RowTimes
    links: LinkTable
    memory: Float[np.ndarray, " all_devices"]

    @cached_property
    def actions(self) -> Actions:
        return actions_of(self.pipeline.table)

    @property
    def length(self) -> int:
        return len(self.times.saved) - 1

    def step_ns(self, bounds: Bounds, share: float = np.inf) -> float:
        devices, room = self.pipeline.devices, share * self.memory
        return float(_step_ns(bounds, devices, self.actions, self.times, self.links, room))

    @property
    def work(self) -> int:
        """About how often a loop of an estimate turns: over passes, tensors and places."""
        return int((self.actions.kind != -1).sum()) * len(self.pipeline.devices) + len(self.times.readers) + self.length

    def climbed(self, bounds: Bounds, share: float = np.inf, most: int = 2**60) -> tuple[Bounds, float]:
        """Bounds from which no shift of neighbouring cuts by 1, 2, 4, ... places is faster, and their time.

        After `most` estimates, the best so far.
        """
        devices, room = self.pipeline.devices, share * self.memory
        best, least = _climbed(bounds, devices, self.actions, self.times, self.links, room, most)
        return best, float(least)


def row_times(passes: StepPasses, place: Int64[np.ndarray, " ops_of_a_micro_batch"]) -> RowTimes:
    """The sums and tensors of a row."""
    one, number, repeated = passes
    length = int(place.max()) + 1
    work = np.zeros((4, length + 1, one.num_devices))
    np.add.at(work, (np.where(repeated, number, 3), place + 1), one.time_ns)
    work = np.cumsum(work, axis=1)
    saved, held = (np.concatenate([[0.0], np.cumsum(each)]) for each in (_saved(passes, place), _held(passes, place)))
    source, kind, pointer, readers, sent_ns = _tensors(passes, place)
    most = _most(passes, place)
    return RowTimes(work[:3].copy(), work[3].copy(), saved, held, most, source, kind, pointer, readers, sent_ns)


def _saved(passes: StepPasses, place: Int64[np.ndarray, " ops_of_a_micro_batch"]) -> Int64[np.ndarray, " places"]:
    """The bytes of each place that a later pass reads."""
    graph, blocks = passes.one.graph, Units("places", place.astype(np.int32), int(place.max()) + 1)
    return kept_bytes(graph, blocks) - persistent_bytes(graph, blocks)


def _held(passes: StepPasses, place: Int64[np.ndarray, " ops_of_a_micro_batch"]) -> Int64[np.ndarray, " places"]:
    """The persistent bytes of each place, and those of gradients that what runs once reads."""
    graph, repeated = passes.one.graph, passes.repeated
    held = np.zeros(int(place.max()) + 1, dtype=np.int64)
    np.add.at(held, place, graph.persistent_bytes)
    late = repeated[graph.edge_src] & ~repeated[graph.edge_dst] & (graph.edge_output != CONTROL)
    summed = np.unique(graph.output_root[graph.edge_data[late]])
    np.add.at(held, place[graph.output_op[summed]], graph.output_bytes[summed])
    return held


def _most(passes: StepPasses, place: Int64[np.ndarray, " ops_of_a_micro_batch"]) -> Float[np.ndarray, " places"]:
    """The bytes of the outputs and the workspace of the largest op of each place."""
    graph = passes.one.graph
    needs = graph.workspace_bytes.astype(np.float64)
    owned = np.where(graph.output_alias == NONE, graph.output_bytes, 0)
    np.add.at(needs, graph.output_op, owned)
    most = np.zeros(int(place.max()) + 1)
    np.maximum.at(most, place, needs)
    return most


def _tensors(passes: StepPasses, place: Int64[np.ndarray, " ops_of_a_micro_batch"]) -> tuple[np.ndarray, ...]:
    """What `RowTimes` says of the outputs of repeated ops that are read at another place."""
    one, number, repeated = passes
    graph = one.graph
    computed = repeated & (np.diff(graph.in_ptr) > 0)
    read = computed[graph.edge_src] & (graph.edge_output != CONTROL)
    edge = np.flatnonzero(read & (place[graph.edge_src] != place[graph.edge_dst]))
    columns = graph.edge_data[edge], ~repeated[graph.edge_dst[edge]], place[graph.edge_dst[edge]]
    reads = np.unique(np.stack(columns, axis=1).astype(np.int64), axis=0)
    starts = np.ones(len(reads), dtype=bool)
    starts[1:] = (reads[1:, :2] != reads[:-1, :2]).any(axis=1)
    output, once = reads[starts, 0], reads[starts, 1] == 1
    op = graph.output_op[output]
    kind = np.where(once, 2, np.minimum(number[op], 1))
    pointer = np.append(np.flatnonzero(starts), len(reads))
    return place[op], kind, pointer, reads[:, 2].copy(), one.transfer_ns[output].astype(np.float64)


def link_table(problem: Problem) -> LinkTable:
    """The links of a problem's cluster as a table."""
    cluster, link = problem.cluster, problem.cluster.link_index

    def of_link(values: Int64[np.ndarray, " links"]) -> Int64[np.ndarray, "devices devices"]:
        return np.append(values, NO_LINK)[link]  # the last one is for no link

    latency_ns = of_link(cluster.link_latency_ns.astype(np.int64)).astype(np.float64)
    rate, channel = (of_link(each.astype(np.int64)) for each in (problem.link_rate, cluster.link_channel))
    return LinkTable(rate, channel, latency_ns, cluster.num_channels)


def actions_of(table: Table) -> Actions:
    """The table as arrays."""
    most = max(len(row) for row in table)
    columns = np.full((3, len(table), most), -1, dtype=np.int64)
    for device, row in enumerate(table):
        for turn, (kind, stage, copy) in enumerate(row):
            columns[:, device, turn] = KINDS.index(kind), stage, copy
    kinds, stages, micro_batches = columns
    return Actions(kinds, stages, micro_batches, int(micro_batches.max()) + 1)


@kernel
@no_type_check
def _step_ns(bounds, device, actions, times, links, room):
    """The time of a step whose stage s, the places `bounds[s]` to before `bounds[s + 1]`, is on `device[s]`.

    Where a device would hold more than its `room`, `OVERFLOW` and the largest excess.
    """
    stages, devices = len(device), len(room)
    excess = _excess(bounds, device, actions, times, room)
    if excess > 0:
        return OVERFLOW + excess
    stage_of = np.empty(bounds[-1], np.int64)
    for stage in range(stages):
        for place in range(bounds[stage], bounds[stage + 1]):
            stage_of[place] = stage
    needs = np.zeros((2, stages, stages), np.bool_)  # of a pass of the second stage, the pass of the first
    send_ns = np.zeros((3, stages, devices))
    for tensor in range(len(times.source)):
        src, kind, seen = stage_of[times.source[tensor]], times.kind[tensor], np.int64(0)
        for position in range(times.reader_ptr[tensor], times.reader_ptr[tensor + 1]):
            dst = stage_of[times.readers[position]]
            if (kind == 0 and src < dst) or (kind == 1 and src > dst):
                needs[kind, src, dst] = True
            bit = np.int64(1) << device[dst]
            if device[dst] != device[src] and not seen & bit:
                seen |= bit
                rate = links.rate[device[src], device[dst]]
                if rate == -1:
                    return np.inf
                send_ns[kind, src, device[dst]] += times.sent_ns[tensor, rate]
    return _finish(bounds, device, actions, times, links, needs, send_ns, devices)


@kernel
@no_type_check
def _excess(bounds, device, actions, times, room):
    """The most bytes that a device holds beyond its room, with the activations that the order of its row keeps."""
    worst = -np.inf
    for row in range(len(actions.kind)):
        held, most, always, largest, at = 0.0, 0.0, 0.0, 0.0, device[actions.stage[row, 0]]
        for stage in range(len(device)):
            if device[stage] == at:
                always += times.held[bounds[stage + 1]] - times.held[bounds[stage]]
                for place in range(bounds[stage], bounds[stage + 1]):
                    largest = max(largest, times.most[place])
        for turn in range(actions.kind.shape[1]):
            kind, stage = actions.kind[row, turn], actions.stage[row, turn]
            if kind == -1:
                break
            saved = times.saved[bounds[stage + 1]] - times.saved[bounds[stage]]
            if kind == 0:
                held += saved
                most = max(most, held)
            elif kind >= 2:
                held -= saved
        worst = max(worst, always + most + largest - room[at])
    return worst


@kernel
@no_type_check
def _finish(bounds, device, actions, times, links, needs, send_ns, devices):
    """The time of the step, or infinity if devices wait forever. A pass ends before what it sends is sent."""
    stages, copies, most = len(device), actions.micro_batches, actions.kind.shape[1]
    end = np.full((2, stages, copies), -1.0)
    came = np.full((2, stages, devices, copies), -1.0)
    free, channel = np.zeros(devices), np.zeros(links.channels)
    turn = np.zeros(len(actions.kind), np.int64)
    left, moved = np.sum(actions.kind != -1), True
    while moved:
        moved = False
        for row in range(len(turn)):
            while turn[row] < most and actions.kind[row, turn[row]] != -1:
                kind, stage = actions.kind[row, turn[row]], actions.stage[row, turn[row]]
                copy, here = actions.copy[row, turn[row]], device[stage]
                ready = 0.0 if kind == 2 else _ready_ns(kind, stage, copy, device, needs, end, came)
                if ready < 0:
                    break
                free[here] = max(free[here], ready)
                for each in range(3):
                    if each == kind or (kind == 3 and each > 0):
                        work = times.work_ns[each, :, here]
                        free[here] += work[bounds[stage + 1]] - work[bounds[stage]]
                if kind != 2:
                    backward = min(kind, 1)
                    end[backward, stage, copy] = free[here]
                    for there in range(devices):
                        if send_ns[backward, stage, there] > 0:
                            by = links.channel[here, there]
                            channel[by] = max(channel[by], free[here]) + send_ns[backward, stage, there]
                            came[backward, stage, there, copy] = channel[by] + links.latency_ns[here, there]
                turn[row] += 1
                left, moved = left - 1, True
    return np.inf if left else _updated(bounds, device, times, links, send_ns, free, channel)


@kernel
@no_type_check
def _ready_ns(kind, stage, copy, device, needs, end, came):
    """When the inputs of a pass F, B or BW are on its device; -1 if one is not computed yet."""
    backward, latest = min(kind, 1), 0.0
    if kind:
        if end[0, stage, copy] < 0:
            return -1.0
        latest = end[0, stage, copy]
    for other in range(len(device)):
        if needs[backward, other, stage]:
            local = device[other] == device[stage]
            ready = end[backward, other, copy] if local else came[backward, other, device[stage], copy]
            if ready < 0:
                return -1.0
            latest = max(latest, ready)
    return latest


@kernel
@no_type_check
def _updated(bounds, device, times, links, send_ns, free, channel):
    """The end of the last update, which waits for gradients of other stages."""
    ready = free.copy()
    for stage in range(len(device)):
        here = device[stage]
        for there in range(len(free)):
            if send_ns[2, stage, there] > 0:
                by = links.channel[here, there]
                channel[by] = max(channel[by], free[here]) + send_ns[2, stage, there]
                ready[there] = max(ready[there], channel[by] + links.latency_ns[here, there])
    for stage in range(len(device)):
        here = device[stage]
        ready[here] += times.once_ns[bounds[stage + 1], here] - times.once_ns[bounds[stage], here]
    return ready.max()


@kernel
@no_type_check
def _climbed(bounds, device, actions, times, links, room, most):
    """Cuts from which no shift of neighbouring cuts by 1, 2, 4, ... places is faster, and their time.

    After `most` more estimates, the best so far.
    """
    best, least = bounds.copy(), _step_ns(bounds, device, actions, times, links, room)
    stages, length = len(device), bounds[-1]
    step = 1
    while 4 * step * stages < length:
        step *= 2
    while step:
        better = True
        while better:
            better = False
            for first in range(1, stages):
                for last in range(first, stages):
                    for shift in (-step, step):
                        if best[first] + shift <= best[first - 1] or best[last] + shift >= best[last + 1]:
                            continue
                        if most == 0:
                            return best, least
                        most -= 1
                        for cut in range(first, last + 1):
                            best[cut] += shift
                        time = _step_ns(best, device, actions, times, links, room)
                        if time < least:
                            least, better = time, True
                        else:
                            for cut in range(first, last + 1):
                                best[cut] -= shift
        step //= 2
    return best, least
