"""Proofs that no placement of a problem fits, and remedies: the least changes of the machine or the workload.

Three sums prove it: the bytes that one op needs on its own device, with the persistent bytes of its colocation group;
the persistent bytes of all ops that only some devices allow; and the bytes that every placement holds at once on all
devices together (`memory`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from gnnplace.bounds.memory import Need, need
from gnnplace.bounds.relaxed import needed_bytes
from gnnplace.graph import ComputationGraph
from gnnplace.problems import Problem
from gnnplace.schedules.buffers import buffers
from gnnplace.units.units import allowed, persistent_bytes, units


class Shortage(NamedTuple):
    """A proof: `what` needs `needs_bytes`, and `where` there are only `has_bytes`.

    Each remedy is the least of its kind.
    """

    what: str
    where: str
    needs_bytes: int
    has_bytes: int
    remedies: tuple[str, ...]

    def __str__(self) -> str:
        short = f"{self.where} {_size(self.has_bytes)}, {_size(self.needs_bytes - self.has_bytes)} too few"
        could = f"; it would take {', or '.join(self.remedies)}" if self.remedies else ""
        return f"no placement fits: {self.what}, {short}{could}"


def shortage(problem: Problem) -> Shortage | None:
    """A proof that no placement of the problem fits; None if none is found."""
    return _of_an_op(problem) or _of_some_devices(problem) or _of_all(problem)


def _of_an_op(problem: Problem) -> Shortage | None:
    """The shortage of an op for which no device has the memory."""
    closure = units(problem.graph, "ops")
    needs = needed_bytes(problem.graph, closure)
    room = np.where(allowed(problem, closure), problem.cluster.memory_bytes, 0).max(axis=1)[closure.unit]
    op = int((needs - room).argmax())
    if needs[op] <= room[op]:
        return None
    what = f"op {problem.graph.op_names[op]!r} needs {_size(int(needs[op]))} on one device"
    remedy = f"a device of {_size(int(needs[op]))}"
    return Shortage(what, "the largest that allows it has", int(needs[op]), int(room[op]), (remedy,))


def _of_some_devices(problem: Problem) -> Shortage | None:
    """The shortage of devices whose memory can't hold the persistent bytes that are allowed nowhere else."""
    closure, cluster = units(problem.graph, "ops"), problem.cluster
    legal, held = allowed(problem, closure), persistent_bytes(problem.graph, closure)
    for mask in np.unique(legal, axis=0):
        needs, has = int(held[~(legal & ~mask).any(axis=1)].sum()), sum(cluster.memory_bytes[mask].tolist())
        if needs > has and not mask.all():
            names = ", ".join(name for name, one in zip(cluster.device_names, mask, strict=True) if one)
            what = f"{_size(needs)} of state are allowed nowhere else"
            return Shortage(what, f"{names} have", needs, has, (f"{_size(needs - has)} more there",))
    return None


def _of_all(problem: Problem) -> Shortage | None:
    """The shortage of all memories together."""
    demand, has = need(problem.graph), sum(problem.cluster.memory_bytes.tolist())
    if demand.total_bytes <= has:
        return None
    while_runs = f"{_size(demand.alive_bytes)} while {problem.graph.op_names[demand.op]!r} runs"
    what = f"{_size(demand.total_bytes)} are held at once ({_size(demand.persistent_bytes)} of state and {while_runs})"
    return Shortage(what, "all devices have", demand.total_bytes, has, tuple(_remedies(problem, demand, has)))


def _remedies(problem: Problem, demand: Need, has: int) -> Iterator[str]:
    graph, missing = problem.graph, demand.total_bytes - has
    largest = max(
        (problem.cluster.devices[d] for d in problem.cluster.accelerators), key=lambda device: device.memory_bytes
    )
    if largest.memory_bytes:
        count = -(-missing // largest.memory_bytes)
        yield f"{count} more {'device' if count == 1 else 'devices'} like {largest.name}"
    if demand.persistent_bytes < has:
        yield f"a smaller batch, {_size(has - demand.persistent_bytes)} beside the state at most"
    saved = int(graph.persistent_bytes[optimiser_state(graph)].sum())
    if saved and demand.total_bytes - saved <= has:
        yield f"an optimiser without state, which saves {_size(saved)}"
    forward = graph.phase.among(["forward"])
    if graph.phase.among(["update"]).any() and (least := need(graph, forward).total_bytes) <= has:
        yield f"inference, which needs {_size(least)}"


def optimiser_state(graph: ComputationGraph) -> Bool[np.ndarray, " ops"]:
    """True for variables that no op of the forward or backward pass reads; for none in a graph without phases."""
    held = buffers(graph)
    op = np.repeat(np.arange(graph.num_ops), np.diff(held.touch_ptr).astype(np.int64))
    passes = graph.phase.among(["forward", "backward_data", "backward_weight"])[op]
    read = np.zeros(graph.num_ops, dtype=bool)
    owner = held.root_op[held.touch_root].astype(np.int64)
    read[owner[passes & (op != owner)]] = True
    updates = graph.phase.among(["update"])
    touched = np.zeros(graph.num_ops, dtype=bool)
    touched[owner[updates[op]]] = True
    return (graph.persistent_bytes > 0) & ~read & touched


def _size(size: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size:,} bytes"
