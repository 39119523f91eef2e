"""What a placer can observe while it places units one after another: loads, memory, links and what already stands
where.

A tensor is sent once to each device (docs/execution-model.md): what a device was sent for one unit need not move for
the next. Which of a unit's outputs a neighbour takes is not kept, so a device is taken to need as much as the one that
takes most: a lower bound.

Observations are estimates in floating point (a list scheduler's view of units that start in decision order);
they steer a policy and never enter a reported step time.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Float32, Int64

from gnnplace.compiled import kernel, part

OBSERVATIONS = (
    "load", "load_above_least", "slowdown", "persistent", "memory", "bytes_shared", "bytes_to_move",
    "finish_above_earliest",
    "finish", "block_share", "speed", "in_use", "capacity", "bandwidth", "sending", "progress", "units_above_least",
)  # fmt: skip
STATIC = ("slowdown", "speed", "capacity", "bandwidth")  # known before anything is placed


class UnitTables(NamedTuple):
    """The constants of one problem's units, in decision order (unit t is the t-th to be placed).

    `peer[ptr[t]:ptr[t+1]]` are the neighbours of t, `sends`/`receives` the bytes that t sends to and gets from each.
    """

    time_ns: Float[np.ndarray, "units devices"]
    persistent: Float[np.ndarray, " units"]
    memory: Float[np.ndarray, " units"]
    block: Int64[np.ndarray, " units"]
    ptr: Int64[np.ndarray, " units_plus_1"]
    peer: Int64[np.ndarray, " peers"]
    sends: Float[np.ndarray, " peers"]
    receives: Float[np.ndarray, " peers"]
    ns_per_byte: Float[np.ndarray, "devices devices"]
    latency_ns: Float[np.ndarray, "devices devices"]
    capacity: Float[np.ndarray, " devices"]


class Scales(NamedTuple):
    """What makes observations comparable between problems."""

    ideal_ns: float  # all work, spread over all devices by their speeds
    unit_ns: float  # the mean time of a unit on its fastest device
    speed: Float[np.ndarray, " devices"]  # all work's fastest time / its time on the device
    bandwidth: Float[np.ndarray, " devices"]  # log of the mean bandwidth out of a device / the best


def scales(tables: UnitTables) -> Scales:
    """Normalisers of one problem."""
    fastest = tables.time_ns.min(axis=1)
    speed = fastest.sum() / tables.time_ns.sum(axis=0)
    linked = np.where(np.isfinite(tables.ns_per_byte) & (tables.ns_per_byte > 0), tables.ns_per_byte, np.nan)
    mean = np.array([np.nanmean(row) if np.isfinite(row).any() else np.nan for row in linked])
    bandwidth = (
        -np.log(np.where(np.isfinite(mean), mean / np.nanmin(mean), 1.0))
        if np.isfinite(mean).any()
        else np.zeros(len(mean))
    )
    return Scales(float(fastest.sum() / speed.sum()), float(fastest.mean()), speed, bandwidth)


class PartialPlacements:
    """`samples` placements of the same units that grow together, one unit at a time."""

    def __init__(self, tables: UnitTables, samples: int) -> None:
        units, devices = tables.time_ns.shape
        self.tables, self.scales, self.placed = tables, scales(tables), 0
        self.device = np.full((samples, units), -1, np.int64)
        self._finish = np.zeros((samples, units))
        self._per_device = np.zeros((samples, 5, devices))  # load, persistent, memory, available, sending
        self._copied = np.zeros((samples, units, devices))  # bytes of each unit that a device has been sent
        self._block_work = np.zeros((samples, int(tables.block.max()) + 1, devices))
        self._observed = np.zeros((samples, devices, len(OBSERVATIONS)), np.float32)
        self._estimate = np.zeros((samples, devices))

    def observe(self) -> Float32[np.ndarray, "samples devices observations"]:
        """What is known of each device for the next unit; valid until the next call."""
        _observe(self.placed, *self._arrays())
        return self._observed

    def place(self, device: Int64[np.ndarray, " samples"]) -> None:
        """Put the next unit on a device in each sample; `observe` comes first."""
        _place(self.placed, device, *self._arrays())
        self.placed += 1

    def replay(
        self, device: Int64[np.ndarray, "samples units"]
    ) -> Float32[np.ndarray, "samples units devices observations"]:
        """Every observation on the way to known placements."""
        samples, units = device.shape
        observed = np.zeros((samples, units, *self._observed.shape[1:]), np.float32)
        _replay(device, observed, *self._arrays())
        return observed

    def _arrays(self) -> tuple:
        state = (
            self.device,
            self._finish,
            self._per_device,
            self._block_work,
            self._copied,
            self._observed,
            self._estimate,
        )
        return tuple(self.tables), tuple(self.scales), state


@kernel
@no_type_check
def _observe(step, tables, scale, state):
    time_ns, persistent, memory, block, ptr, peer, sends, receives, ns_per_byte, latency_ns, capacity = tables
    ideal_ns, unit_ns, speed, bandwidth = scale
    device, finish, per_device, block_work, copied, observed, estimate = state
    samples, num_devices = device.shape[0], time_ns.shape[1]
    fastest, roomiest = time_ns[step].min(), capacity.max()
    sent = np.zeros(num_devices)
    for s in range(samples):
        load, held, used, available, sending = per_device[s]
        placed_work = load.sum()
        block_total = block_work[s, block[step]].sum()
        _sent_to(sent, step, device[s], ptr, peer, sends)
        for d in range(num_devices):
            arrival, shared, moved = 0.0, sent[d], 0.0
            for there in range(num_devices):
                moved += sent[there] * ns_per_byte[d, there]
            for k in range(ptr[step], ptr[step + 1]):
                other = device[s, peer[k]]
                if other == -1:
                    continue
                if other == d:
                    shared += receives[k]
                else:
                    here = min(receives[k], copied[s, peer[k], d])
                    shared += here
                    moved += (receives[k] - here) * ns_per_byte[other, d]
                    if receives[k] > 0:
                        arrival = max(
                            arrival, finish[s, peer[k]] + latency_ns[other, d] + receives[k] * ns_per_byte[other, d]
                        )
                        continue
                if receives[k] > 0:
                    arrival = max(arrival, finish[s, peer[k]])
            estimate[s, d] = max(arrival, available[d]) + time_ns[step, d]
            row = observed[s, d]
            row[0] = (load[d] + time_ns[step, d]) / ideal_ns
            row[2] = np.log(time_ns[step, d] / fastest)
            row[3] = (held[d] + persistent[step]) / capacity[d]
            row[4] = (used[d] + memory[step]) / capacity[d]
            row[5] = np.log1p(shared * _mean_ns_per_byte(ns_per_byte) / unit_ns)
            row[6] = np.log1p(moved / unit_ns)
            row[9] = block_work[s, block[step], d] / block_total if block_total > 0 else 0.0
            row[10] = np.log(speed[d])
            row[11] = 1.0 if load[d] > 0 else 0.0
            row[12] = capacity[d] / roomiest
            row[13] = bandwidth[d]
            row[14] = sending[d] / ideal_ns
            row[15] = placed_work / ideal_ns / num_devices
        earliest, least = estimate[s].min(), observed[s, :, 0].min()
        for d in range(num_devices):
            observed[s, d, 1] = observed[s, d, 0] - least
            observed[s, d, 16] = np.log1p(observed[s, d, 1] * ideal_ns / unit_ns)
            observed[s, d, 7] = np.log1p((estimate[s, d] - earliest) / unit_ns)
            observed[s, d, 8] = estimate[s, d] / ideal_ns


@part
@no_type_check
def _sent_to(sent, step, device, ptr, peer, sends):
    """The bytes that a unit sends to each device: what several units there
    take is sent once, so it is the most that one takes.
    """
    sent[:] = 0
    for k in range(ptr[step], ptr[step + 1]):
        there = device[peer[k]]
        if there != -1:
            sent[there] = max(sent[there], sends[k])


@part
@no_type_check
def _mean_ns_per_byte(ns_per_byte):
    total, count = 0.0, 0
    for value in ns_per_byte.flat:
        if value > 0 and np.isfinite(value):
            total += value
            count += 1
    return total / count if count else 0.0


@kernel
@no_type_check
def _place(step, chosen, tables, scale, state):
    time_ns, persistent, memory, block, ptr, peer, sends, receives, ns_per_byte, latency_ns, capacity = tables
    device, finish, per_device, block_work, copied, observed, estimate = state
    sent = np.zeros(time_ns.shape[1])
    for s in range(device.shape[0]):
        d = chosen[s]
        _sent_to(sent, step, device[s], ptr, peer, sends)
        for there in range(len(sent)):
            if there != d:
                copied[s, step, there] = sent[there]
                per_device[s, 4, d] += sent[there] * ns_per_byte[d, there]
        device[s, step] = d
        finish[s, step] = estimate[s, d]
        per_device[s, 0, d] += time_ns[step, d]
        per_device[s, 1, d] += persistent[step]
        per_device[s, 2, d] += memory[step]
        per_device[s, 3, d] = max(per_device[s, 3, d], estimate[s, d])
        block_work[s, block[step], d] += time_ns[step, d]
        for k in range(ptr[step], ptr[step + 1]):
            other = device[s, peer[k]]
            if other != -1 and other != d:
                missing = max(0.0, receives[k] - copied[s, peer[k], d])
                copied[s, peer[k], d] += missing
                per_device[s, 4, other] += missing * ns_per_byte[other, d]


@kernel
@no_type_check
def _replay(chosen, observed, tables, scale, state):
    device, finish, per_device, block_work, copied, now, estimate = state
    for step in range(chosen.shape[1]):
        _observe(step, tables, scale, state)
        observed[:, step] = now
        _place(step, chosen[:, step], tables, scale, state)
