"""Interchangeable devices: exchanging two of them maps the machine, and all times on it, onto itself.

A placement stays as good if its interchangeable devices are renamed: only ties change, which go by device number
(docs/execution-model.md). So a policy may learn one of the names, the first in order of use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int64

from gnnplace.cluster import NO_CHANNEL, NO_LINK, NO_MEMORY, Cluster
from gnnplace.problems import Problem


def by_first_use(problem: Problem, device: Int64[np.ndarray, " units"]) -> Int64[np.ndarray, " units"]:
    """The devices of the units, with interchangeable devices renamed in the order of their first use."""
    alike = interchangeable(problem)
    used = list(dict.fromkeys(device.tolist()))
    rename = np.arange(problem.num_devices)
    for first in np.unique(alike):
        members = np.flatnonzero(alike == first)
        by_use = [d for d in used if alike[d] == first] + [d for d in members if d not in used]
        rename[by_use] = members
    return rename[device]


def interchangeable(problem: Problem) -> Int64[np.ndarray, " devices"]:
    """The lowest device that each device may be exchanged with, or the device itself.

    Exchanges of (a, b) and of (b, c) make one of (a, c), so all devices with one answer may be permuted at will.
    """
    alike = np.arange(problem.num_devices)
    for second in range(problem.num_devices):
        for first in np.unique(alike[:second]).tolist():
            if _exchangeable(problem, first, second):
                alike[second] = first
                break
    return alike


def _exchangeable(problem: Problem, first: int, second: int) -> bool:
    cluster = problem.cluster
    one, other = (replace(cluster.devices[device], name="", memory=None) for device in (first, second))
    if one != other:
        return False
    tables = [table for table in (problem.time_ns, problem.allowed, problem.contended_ns) if table is not None]
    return all(np.array_equal(table[:, first], table[:, second]) for table in tables) and _maps_onto_itself(
        cluster, first, second
    )


def _maps_onto_itself(cluster: Cluster, first: int, second: int) -> bool:
    """Whether links keep their rates, and channels and shared memories are renamed one to one."""
    exchanged = np.arange(cluster.num_devices)
    exchanged[[first, second]] = second, first
    moved = cluster.link_index[np.ix_(exchanged, exchanged)]
    if not np.array_equal(moved == NO_LINK, cluster.link_index == NO_LINK):
        return False
    linked = cluster.link_index != NO_LINK
    pairs = list(zip(cluster.link_index[linked].tolist(), moved[linked].tolist(), strict=True))
    rates = [(link.bandwidth_bytes_per_s, link.overhead_ns, link.latency_ns) for link in cluster.links]
    sends, receives, internal, memory = (
        column.tolist()
        for column in (
            cluster.link_channel,
            cluster.link_receive_channel,
            cluster.device_channel,
            cluster.device_memory,
        )
    )
    channels = [(column[a], column[b]) for column in (sends, receives) for a, b in pairs]
    channels += [(internal[d], internal[exchanged[d]]) for d in range(cluster.num_devices)]
    memories = [(memory[d], memory[exchanged[d]]) for d in range(cluster.num_devices)]
    return (
        all(rates[a] == rates[b] for a, b in pairs)
        and _one_to_one(channels, NO_CHANNEL)
        and _one_to_one(memories, NO_MEMORY)
    )


def _one_to_one(pairs: Sequence[tuple[int, int]], none: int) -> bool:
    """Whether the pairs rename numbers one to one; `none`, which stands for no number, keeps its meaning."""
    distinct = {*pairs, (none, none)}
    return len(distinct) == len({a for a, _ in distinct}) == len({b for _, b in distinct})
