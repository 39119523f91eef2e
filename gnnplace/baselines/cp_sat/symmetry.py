"""Equal devices in the constraint program: of all placements that differ in their names alone, one is enough.

Two devices are equal where the program stays the same when they change places, and the channels with them: the times (beside others,
too) and legality of every op, streams, memory and what is received apart agree; each link has a counterpart of the same rate and latency;
and what stands for a channel is one channel, always the same, a device's own for a device's own. Exchanges that change nothing can be put
after one another, so equality is an equivalence, and the devices of a class may be renamed at will, whatever is done to other classes.

So every schedule can be renamed such that the devices of a class are in the order of the first unit that stands on each, unused ones
last, and keeps its step time. A program that asks for this order (value precedence, Law and Lee, 2004) has the same optimum.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from jaxtyping import Int32

from gnnplace.baselines.cp_sat.model import Program
from gnnplace.cluster import NO_CHANNEL, NO_LINK
from gnnplace.problems import Problem


def add_symmetry(program: Program) -> None:
    """A unit stands on a device only if one before it stands on the device before it in its class, the classes of `equal_devices`."""
    rows = list({id(row): row for row in program.stands}.values())
    for devices in equal_devices(program.problem):
        for before, device in pairwise(devices):
            for place, row in enumerate(rows):
                program.model.add_bool_or([row[device].negated(), *(other[before] for other in rows[:place])])


def numbers_in_order(problem: Problem, device: Int32[np.ndarray, " ops"]) -> Int32[np.ndarray, " devices"]:
    """New numbers for devices under which a placement is in the order that `add_symmetry` asks for."""
    first = np.full(problem.num_devices, problem.num_ops, dtype=np.int64)
    first[device[::-1]] = np.arange(problem.num_ops)[::-1]
    number = np.arange(problem.num_devices, dtype=np.int32)
    for devices in equal_devices(problem):
        number[sorted(devices, key=lambda d: int(first[d]))] = devices
    return number


def equal_devices(problem: Problem) -> list[list[int]]:
    """The classes of equal devices, in order."""
    classes: list[list[int]] = []
    for device in range(problem.num_devices):
        for devices in classes:
            if _exchangeable(problem, devices[0], device):
                devices.append(device)
                break
        else:
            classes.append([device])
    return classes


def _exchangeable(problem: Problem, a: int, b: int) -> bool:
    """Whether nothing that the program is made of changes when two devices change places."""
    cluster = problem.cluster
    columns = (problem.time_ns.T, problem.slowest_ns.T, problem.allowed.T, cluster.streams, cluster.memory_bytes, cluster.device_received)
    if any(not np.array_equal(column[a], column[b]) for column in columns):
        return False
    swap = np.arange(problem.num_devices)
    swap[[a, b]] = b, a
    links, exchanged = cluster.link_index, cluster.link_index[np.ix_(swap, swap)]
    there = links != NO_LINK
    if not np.array_equal(there, exchanged != NO_LINK):
        return False
    links, exchanged = links[there], exchanged[there]
    if any(not np.array_equal(column[links], column[exchanged]) for column in (problem.link_rate, cluster.link_latency_ns)):
        return False
    own = cluster.device_channel
    stands_for = {(NO_CHANNEL, NO_CHANNEL), *zip(own.tolist(), own[swap].tolist(), strict=True)}
    for column in (cluster.link_channel, cluster.link_receive_channel):
        stands_for |= set(zip(column[links].tolist(), column[exchanged].tolist(), strict=True))
    return len(stands_for) == len({channel for channel, _ in stands_for}) == len({channel for _, channel in stands_for})
