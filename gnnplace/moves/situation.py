"""The situation of a placement: values of every op and every device from the timeline, for the features of moves."""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Int32

from gnnplace.cluster import NO_CHANNEL
from gnnplace.compiled import kernel
from gnnplace.moves.neighbourhood import Devices, Neighbourhood
from gnnplace.problems import Problem
from gnnplace.result import StepResult, Timeline
from gnnplace.schedules.arrivals import arrivals
from gnnplace.schedules.critical_chain import waiting
from gnnplace.schedules.ranks import NOTHING
from gnnplace.schedules.tails import tail_ns

WINDOWS = 256  # of a step, for the idle time of devices
# The kinds of time on the critical chain: of ops that waited for their device or for an input, and of transfers that
# waited for a channel or did not. The last two kinds repeat some of this time: of an op or transfer for whose device or
# channel the next one waited, and, by op, of the transfer for which it waited.
ON_DEVICE, ON_INPUT, ON_CHANNEL, AT_ONCE, BLOCKS, RECEIVES = range(6)


class Situation(NamedTuple):
    """The situation. Times are in ns, as floats.

    `tail_ns` is the time from the end of an op to the end of the step if nothing waits any longer. `chain_ns` has the
    time on the critical chain by kind. `busy_ns[d, w]` is the time that device d works before the end of window w - 1.
    """

    device: Int32[np.ndarray, " ops"]
    step_ns: float
    start_ns: Float[np.ndarray, " ops"]
    end_ns: Float[np.ndarray, " ops"]
    ready_ns: Float[np.ndarray, " ops"]
    tail_ns: Float[np.ndarray, " ops"]
    chain_ns: Float[np.ndarray, "ops 6"]
    readers: Int32[np.ndarray, "outputs devices"]  # edges to each device
    busy_ns: Float[np.ndarray, "devices windows_plus_1"]
    load_ns: Float[np.ndarray, " devices"]
    chain_load_ns: Float[np.ndarray, " devices"]
    occupied_ns: Float[np.ndarray, " channels"]
    peak_bytes: Float[np.ndarray, " devices"]

    @property
    def waited_ns(self) -> Float[np.ndarray, " ops"]:
        """The time of each op and of its transfers on the critical chain, as in `critical_chain.chain_ns`."""
        return self.chain_ns[:, :BLOCKS].sum(axis=1)


def situation(problem: Problem, around: Neighbourhood, device: Devices, result: StepResult) -> Situation:
    """The situation of a placement. All times come from the timeline of its result."""
    timeline, terrain = result.timeline, around.terrain
    assert timeline is not None and result.peak_memory_bytes is not None
    on = device[around.closure.unit]
    arrive = arrivals(problem, on, timeline)
    waits = waiting(problem, on, timeline, arrive)
    last = int(timeline.end_ns.argmax())
    chain = waits.chain(last)
    chain_ns, chain_load_ns = _chain_times(on, problem.num_devices, chain, waits, int(timeline.end_ns[last]))
    start_ns, end_ns = timeline.start_ns.astype(np.float64), timeline.end_ns.astype(np.float64)
    return Situation(
        device=on,
        step_ns=float(end_ns[last]),
        start_ns=start_ns,
        end_ns=end_ns,
        ready_ns=waits.ready_ns.astype(np.float64),
        tail_ns=tail_ns(problem, on, timeline, arrive),
        chain_ns=chain_ns,
        readers=_readers(terrain.delays, len(terrain.output_op), on),
        busy_ns=_busy(on, problem.num_devices, start_ns, end_ns, float(end_ns[last])),
        load_ns=np.bincount(on, end_ns - start_ns, problem.num_devices) / problem.cluster.streams,
        chain_load_ns=chain_load_ns,
        occupied_ns=_occupied_ns(problem, timeline),
        peak_bytes=result.peak_memory_bytes.astype(np.float64),
    )


def _occupied_ns(problem: Problem, timeline: Timeline) -> Float[np.ndarray, " channels"]:
    """The time that each channel carries transfers; a measured result does not have it."""
    cluster, occupied_ns = problem.cluster, np.zeros(problem.cluster.num_channels)
    link = cluster.link_index[timeline.transfer_src, timeline.transfer_dst]
    np.add.at(occupied_ns, cluster.link_channel[link], timeline.transfer_end_ns - timeline.transfer_start_ns)
    twice = cluster.link_receive_channel[link] != NO_CHANNEL
    received_ns = timeline.receive_end_ns - timeline.receive_start_ns
    np.add.at(occupied_ns, cluster.link_receive_channel[link[twice]], received_ns[twice])
    return occupied_ns


@kernel
@no_type_check
def _chain_times(device, num_devices, chain, waits, end_ns):
    """The time of each op on the chain by kind, and of each device."""
    ops = len(device)
    times, load = np.zeros((ops, 6)), np.zeros(num_devices)
    for place in range(len(chain)):
        node = chain[place]
        op, start_ns, waited = waits.op[node], waits.start_ns[node], waits.queued[node]
        time_ns = float(end_ns - start_ns)
        end_ns = start_ns
        if node < ops:
            times[op, ON_DEVICE if waited else ON_INPUT] += time_ns
            load[device[op]] += time_ns
        else:
            times[op, ON_CHANNEL if waited else AT_ONCE] += time_ns
        if place > 0:
            after = chain[place - 1]
            if waits.queued[after]:
                times[op, BLOCKS] += time_ns
            if node >= ops and after < ops:
                times[after, RECEIVES] += time_ns
    return times, load


@kernel
@no_type_check
def _readers(delays, outputs, device):
    readers = np.zeros((outputs, delays.time_ns.shape[1]), np.int32)
    for edge in range(len(delays.edges)):
        output = delays.edges[edge].output
        if output != NOTHING:
            readers[output, device[delays.edges[edge].dst]] += 1
    return readers


@kernel
@no_type_check
def _busy(device, num_devices, start_ns, end_ns, step_ns):
    """The time that each device works before the end of each window; parallel streams count once."""
    busy_ns, window_ns = np.zeros((num_devices, WINDOWS + 1)), step_ns / WINDOWS
    for op in range(len(device)):
        first, last = start_ns[op] / window_ns, end_ns[op] / window_ns
        window = int(first)
        while window < WINDOWS and window < last:
            busy_ns[device[op], window + 1] += (min(last, window + 1) - max(first, window)) * window_ns
            window += 1
    for here in range(num_devices):
        for window in range(1, WINDOWS + 1):
            busy_ns[here, window] = busy_ns[here, window - 1] + min(busy_ns[here, window], window_ns)
    return busy_ns
