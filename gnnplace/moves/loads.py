"""Of the devices that moved ops leave and join: load, idle time, memory, share of the critical chain."""

from __future__ import annotations

from typing import no_type_check

from gnnplace.compiled import part_allocates_nothing
from gnnplace.moves.columns import (
    CHAIN_SOURCE,
    CHAIN_TARGET,
    CHAIN_TRANSFERS,
    CHANNEL_AFTER,
    CHANNEL_BEFORE,
    DEVICES,
    IDLE_BY_WORK,
    IDLE_SOURCE,
    IDLE_TARGET,
    LOAD_AFTER,
    LOAD_BEFORE,
    LOAD_SOURCE,
    LOAD_TARGET,
    LOAD_TARGET_AFTER,
    MEMORY_LEFT,
    OVERFLOW_BEFORE,
    OVERFLOW_MORE,
    SOURCES,
    SQUARES_MORE,
    TARGETS,
    UTILISATION,
)
from gnnplace.moves.situation import WINDOWS

MOST_IDLE = 4.0  # times the work


@no_type_check
@part_allocates_nothing
def device_loads(terrain, situation, row, load_ns, occupied_ns, peak_bytes, leaves_ns, joins_ns, window):
    """Loads, idle time, memory and the critical chain of the devices that the ops leave and join.

    One compiled loop over devices: a dozen sums grow together.
    """
    step_ns, num_devices, left, joined = situation.step_ns, len(load_ns), _total(leaves_ns), _total(joins_ns)
    squares = over_before = over_after = 0.0
    memory_left, sources, targets = 1.0, 0, 0
    for device in range(num_devices):
        squares += load_ns[device] ** 2 - situation.load_ns[device] ** 2
        memory = float(terrain.memory_bytes[device])
        of_memory = max(1.0, memory)  # a device may have none
        over_before += max(0.0, situation.peak_bytes[device] - memory) / of_memory
        over_after += max(0.0, peak_bytes[device] - memory) / of_memory
        if leaves_ns[device] > 0:
            share = leaves_ns[device] / left
            sources += 1
            row[LOAD_SOURCE] += share * situation.load_ns[device] / step_ns
            row[CHAIN_SOURCE] += share * situation.chain_load_ns[device] / step_ns
            row[IDLE_SOURCE] += share * _idle(situation, device, window[0, 0, device], window[0, 1, device])[1]
        if joins_ns[device] > 0:
            share = joins_ns[device] / joined
            targets += 1
            row[LOAD_TARGET] += share * situation.load_ns[device] / step_ns
            row[LOAD_TARGET_AFTER] += share * load_ns[device] / step_ns
            row[CHAIN_TARGET] += share * situation.chain_load_ns[device] / step_ns
            idle_ns, idle = _idle(situation, device, window[1, 0, device], window[1, 1, device])
            row[IDLE_BY_WORK] += share * min(MOST_IDLE, idle_ns / (joins_ns[device] + 1.0))
            row[IDLE_TARGET] += share * idle
            memory_left = min(memory_left, (memory - peak_bytes[device]) / of_memory)
    row[LOAD_BEFORE], row[LOAD_AFTER] = _largest(situation.load_ns) / step_ns, _largest(load_ns) / step_ns
    row[SQUARES_MORE] = squares / step_ns / step_ns
    if len(occupied_ns) > 0:
        row[CHANNEL_BEFORE], row[CHANNEL_AFTER] = (
            _largest(situation.occupied_ns) / step_ns,
            _largest(occupied_ns) / step_ns,
        )
    row[CHAIN_TRANSFERS] = 1 - _total(situation.chain_load_ns) / step_ns
    row[MEMORY_LEFT], row[OVERFLOW_BEFORE], row[OVERFLOW_MORE] = memory_left, over_before, over_after - over_before
    row[SOURCES], row[TARGETS], row[DEVICES], row[UTILISATION] = (
        sources,
        targets,
        num_devices,
        _total(situation.load_ns) / step_ns / num_devices,
    )


@no_type_check
@part_allocates_nothing
def _idle(situation, device, first_ns, last_ns):
    """The idle time of a device in a window, and its share of the window."""
    if last_ns <= first_ns:
        return 0.0, 0.0
    idle_ns = last_ns - first_ns - (_worked(situation, device, last_ns) - _worked(situation, device, first_ns))
    return idle_ns, idle_ns / (last_ns - first_ns)


@no_type_check
@part_allocates_nothing
def _worked(situation, device, time_ns):
    """The time that a device works until a time, linear within windows."""
    at = min(max(0.0, time_ns / situation.step_ns * WINDOWS), float(WINDOWS))
    window = min(int(at), WINDOWS - 1)
    return situation.busy_ns[device, window] + (at - window) * (
        situation.busy_ns[device, window + 1] - situation.busy_ns[device, window]
    )


@no_type_check
@part_allocates_nothing
def _largest(values):
    most = values[0]
    for value in values:
        most = max(most, value)
    return most


@no_type_check
@part_allocates_nothing
def _total(values):
    total = 0.0
    for value in values:
        total += value
    return total
