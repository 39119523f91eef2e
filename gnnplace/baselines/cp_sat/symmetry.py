"""Symmetry breaking: of all placements that differ only by a renaming of equal devices, the program needs one.

Two devices are equal if the program stays the same when they and their channels change places. Then they agree in the
time (alone and contended) and the allowed devices of every op, in streams, memory and `received`. Each link has a
counterpart of the same rate and latency. The exchange maps channels one to one, and a device's own channel to the other
device's own channel. Such exchanges compose, so equality is an equivalence relation, and the devices of a class may be
renamed independently of other classes.

So every schedule has a renaming with the same step time in which the devices of a class are in the order of the first
unit on each, and unused devices come last. A program with this constraint (value precedence, Law and Lee, 2004) has the
same optimum.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from jaxtyping import Int32

from gnnplace.baselines.cp_sat.model import ConstraintProgram
from gnnplace.cluster import NO_CHANNEL, NO_LINK
from gnnplace.problems import Problem


def add_symmetry(program: ConstraintProgram) -> None:
    """A unit may use a device only if an earlier unit uses the previous device of the same class (`equal_devices`)."""
    rows = list({id(row): row for row in program.stands}.values())
    for devices in equal_devices(program.problem):
        for before, device in pairwise(devices):
            for place, row in enumerate(rows):
                program.model.add_bool_or([row[device].negated(), *(other[before] for other in rows[:place])])


def numbers_in_order(problem: Problem, device: Int32[np.ndarray, " ops"]) -> Int32[np.ndarray, " devices"]:
    """New numbers of devices with which a placement has the order that `add_symmetry` requires."""
    first = np.full(problem.num_devices, problem.num_ops, dtype=np.int64)
    first[device[::-1]] = np.arange(problem.num_ops)[::-1]
    number = np.arange(problem.num_devices, dtype=np.int32)
    for devices in equal_devices(problem):
        number[sorted(devices, key=lambda d: int(first[d]))] = devices
    return number


def equal_devices(problem: Problem) -> list[list[int]]:
    """The classes of equal devices, in order of their first devices."""
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
    """Whether the program stays the same when two devices change places."""
    cluster = problem.cluster
    columns = (
        problem.time_ns.T,
        problem.slowest_ns.T,
        problem.allowed.T,
        cluster.streams,
        cluster.memory_bytes,
        cluster.device_received,
    )
    if any(not np.array_equal(column[a], column[b]) for column in columns):
        return False
    swap = np.arange(problem.num_devices)
    swap[[a, b]] = b, a
    links, exchanged = cluster.link_index, cluster.link_index[np.ix_(swap, swap)]
    there = links != NO_LINK
    if not np.array_equal(there, exchanged != NO_LINK):
        return False
    links, exchanged = links[there], exchanged[there]
    if any(
        not np.array_equal(column[links], column[exchanged]) for column in (problem.link_rate, cluster.link_latency_ns)
    ):
        return False
    own_channel = cluster.device_channel
    stands_for = {(NO_CHANNEL, NO_CHANNEL), *zip(own_channel.tolist(), own_channel[swap].tolist(), strict=True)}
    for column in (cluster.link_channel, cluster.link_receive_channel):
        stands_for |= set(zip(column[links].tolist(), column[exchanged].tolist(), strict=True))
    return len(stands_for) == len({channel for channel, _ in stands_for}) == len({channel for _, channel in stands_for})
