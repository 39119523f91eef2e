"""What a placer observes of each device while it places units one after another: load, memory, links, neighbours.

A tensor is sent to each device once (docs/execution-model.md), so a device keeps what it has received for earlier
units. The tables don't say which of a unit's outputs a neighbour reads. So a device is assumed to need as many bytes as
the neighbour there that reads most: a lower bound.

Observations are estimates in floating point, as a list scheduler makes them of units that start in decision order. They
steer a policy and never enter a reported step time.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Float32, Int64

from gnnplace.compiled import kernel, part


class Column(NamedTuple):
    """The observations of a device for the next unit, in the order of their columns.

    "Ideal" is the time of all work, spread over all devices; "unit" the mean time of a unit on its fastest device
    (`Scales`).
    """

    load: int  # the device's work with the unit / ideal
    load_above_least: int  # load - the least load of all devices
    slowdown: int  # log(the unit's time / its time on its fastest device)
    persistent: int  # persistent bytes with the unit's / capacity
    memory: int  # persistent and output bytes with the unit's / capacity
    bytes_shared: int  # log(1 + the time of the bytes that stay on the device / unit)
    bytes_to_move: int  # log(1 + the time of the bytes that cross links / unit)
    finish_above_earliest: int  # log(1 + (the unit's finish - the earliest of all devices) / unit)
    finish: int  # the unit's finish / ideal
    block_share: int  # the device's share of the placed work of the unit's block
    speed: int  # log(the device's speed)
    in_use: int  # 1 if the device has work, else 0
    capacity: int  # memory / the largest of all devices
    bandwidth: int  # log(the mean bandwidth out of the device / the best)
    sending: int  # the time of the device's transfers to others / ideal
    progress: int  # all placed work / ideal / devices
    units_above_least: int  # log(1 + load_above_least in units)


OBSERVATIONS = Column._fields
COLUMN = Column(*range(len(OBSERVATIONS)))
STATIC = ("slowdown", "speed", "capacity", "bandwidth")  # they depend on no decision


class UnitTables(NamedTuple):
    """The constants of one problem's units, in decision order: unit t is the t-th to be placed.

    The neighbours of unit t are `peer[ptr[t]:ptr[t+1]]`; `sends` and `receives` are the bytes that it sends to each and
    receives from each.
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
    """Normalisers, which make observations comparable between problems."""

    ideal_ns: float  # all work, spread over all devices by their speeds
    unit_ns: float  # the mean time of a unit on its fastest device
    speed: Float[np.ndarray, " devices"]  # the fastest time of all work / its time on the device
    bandwidth: Float[np.ndarray, " devices"]  # log(the mean bandwidth out of a device / the best)


def scales(tables: UnitTables) -> Scales:
    """The normalisers of one problem."""
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
        self._per_device = np.zeros((samples, 5, devices))  # load, kept, used, available, sending
        self._copied = np.zeros((samples, units, devices))  # bytes of each unit that a device has received
        self._block_work = np.zeros((samples, int(tables.block.max()) + 1, devices))
        self._observed = np.zeros((samples, devices, len(OBSERVATIONS)), np.float32)
        self._estimate = np.zeros((samples, devices))

    def observe(self) -> Float32[np.ndarray, "samples devices observations"]:
        """The observations of each device for the next unit; valid until the next call."""
        _observe(self.placed, *self._arrays())
        return self._observed

    def place(self, device: Int64[np.ndarray, " samples"]) -> None:
        """Puts the next unit on a device in each sample; `observe` comes first."""
        _place(self.placed, device, *self._arrays())
        self.placed += 1

    def replay(
        self, device: Int64[np.ndarray, "samples units"]
    ) -> Float32[np.ndarray, "samples units devices observations"]:
        """All observations on the way to given placements."""
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
    """Fills `observed` and `estimate`, the finish of unit `step` on each device, of every sample.

    One compiled loop over samples and devices: a helper for its inner part would need all tables and sums.
    """
    time_ns, persistent, memory, block, ptr, peer, sends, receives, ns_per_byte, latency_ns, capacity = tables
    ideal_ns, unit_ns, speed, bandwidth = scale
    device, finish, per_device, block_work, copied, observed, estimate = state
    samples, num_devices = device.shape[0], time_ns.shape[1]
    fastest, roomiest = time_ns[step].min(), capacity.max()
    sent = np.zeros(num_devices)
    for s in range(samples):
        load, kept, used, available, sending = per_device[s]
        placed_work = load.sum()
        block_total = block_work[s, block[step]].sum()
        _sent_to(sent, step, device[s], ptr, peer, sends)
        for d in range(num_devices):
            arrival, shared, moved = 0.0, sent[d], 0.0
            for reader in range(num_devices):
                moved += sent[reader] * ns_per_byte[d, reader]
            for k in range(ptr[step], ptr[step + 1]):
                other = device[s, peer[k]]
                if other == -1:
                    continue
                if other == d:
                    shared += receives[k]
                else:
                    received = min(receives[k], copied[s, peer[k], d])
                    shared += received
                    moved += (receives[k] - received) * ns_per_byte[other, d]
                    if receives[k] > 0:
                        arrival = max(
                            arrival, finish[s, peer[k]] + latency_ns[other, d] + receives[k] * ns_per_byte[other, d]
                        )
                        continue
                if receives[k] > 0:
                    arrival = max(arrival, finish[s, peer[k]])
            estimate[s, d] = max(arrival, available[d]) + time_ns[step, d]
            row = observed[s, d]
            row[COLUMN.load] = (load[d] + time_ns[step, d]) / ideal_ns
            row[COLUMN.slowdown] = np.log(time_ns[step, d] / fastest)
            row[COLUMN.persistent] = (kept[d] + persistent[step]) / capacity[d]
            row[COLUMN.memory] = (used[d] + memory[step]) / capacity[d]
            row[COLUMN.bytes_shared] = np.log1p(shared * _mean_ns_per_byte(ns_per_byte) / unit_ns)
            row[COLUMN.bytes_to_move] = np.log1p(moved / unit_ns)
            row[COLUMN.block_share] = block_work[s, block[step], d] / block_total if block_total > 0 else 0.0
            row[COLUMN.speed] = np.log(speed[d])
            row[COLUMN.in_use] = 1.0 if load[d] > 0 else 0.0
            row[COLUMN.capacity] = capacity[d] / roomiest
            row[COLUMN.bandwidth] = bandwidth[d]
            row[COLUMN.sending] = sending[d] / ideal_ns
            row[COLUMN.progress] = placed_work / ideal_ns / num_devices
        earliest, least = estimate[s].min(), observed[s, :, COLUMN.load].min()
        for d in range(num_devices):
            row = observed[s, d]
            row[COLUMN.load_above_least] = row[COLUMN.load] - least
            row[COLUMN.units_above_least] = np.log1p(row[COLUMN.load_above_least] * ideal_ns / unit_ns)
            row[COLUMN.finish_above_earliest] = np.log1p((estimate[s, d] - earliest) / unit_ns)
            row[COLUMN.finish] = estimate[s, d] / ideal_ns


@part
@no_type_check
def _sent_to(sent, step, device, ptr, peer, sends):
    """The bytes that a unit sends to each device: the most that one unit on it reads."""
    sent[:] = 0
    for k in range(ptr[step], ptr[step + 1]):
        reader = device[peer[k]]
        if reader != -1:
            sent[reader] = max(sent[reader], sends[k])


@part
@no_type_check
def _mean_ns_per_byte(ns_per_byte):
    """The mean over links that exist; 0 without links."""
    total, count = 0.0, 0
    for value in ns_per_byte.flat:
        if value > 0 and np.isfinite(value):
            total += value
            count += 1
    return total / count if count else 0.0


@kernel
@no_type_check
def _place(step, chosen, tables, scale, state):
    """Puts unit `step` of sample s on device `chosen[s]`; `_observe` comes first."""
    time_ns, persistent, memory, block, ptr, peer, sends, receives, ns_per_byte, latency_ns, capacity = tables
    device, finish, per_device, block_work, copied, observed, estimate = state
    sent = np.zeros(time_ns.shape[1])
    for s in range(device.shape[0]):
        d = chosen[s]
        load, kept, used, available, sending = per_device[s]
        _sent_to(sent, step, device[s], ptr, peer, sends)
        for reader in range(len(sent)):
            if reader != d:
                copied[s, step, reader] = sent[reader]
                sending[d] += sent[reader] * ns_per_byte[d, reader]
        device[s, step] = d
        finish[s, step] = estimate[s, d]
        load[d] += time_ns[step, d]
        kept[d] += persistent[step]
        used[d] += memory[step]
        available[d] = max(available[d], estimate[s, d])
        block_work[s, block[step], d] += time_ns[step, d]
        for k in range(ptr[step], ptr[step + 1]):
            other = device[s, peer[k]]
            if other != -1 and other != d:
                missing = max(0.0, receives[k] - copied[s, peer[k], d])
                copied[s, peer[k], d] += missing
                sending[other] += missing * ns_per_byte[other, d]


@kernel
@no_type_check
def _replay(chosen, observed, tables, scale, state):
    device, finish, per_device, block_work, copied, now, estimate = state
    for step in range(chosen.shape[1]):
        _observe(step, tables, scale, state)
        observed[:, step] = now
        _place(step, chosen[:, step], tables, scale, state)
