"""Steps that can be worked out by hand: ops of given times on three GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.simulator.simulator import simulate


def op(name: str, time_ns: int, *outputs: int | Output, **columns) -> Op:
    sizes = tuple(output if isinstance(output, Output) else Output(output) for output in outputs)
    return Op(name, "Op", sizes, time_ns={"gpu": time_ns}, **columns)


def made(ops: Sequence[Op], edges: Sequence[tuple[int, int, int]], cluster: Cluster) -> Problem:
    return problem(ComputationGraph.from_ops("by-hand", ops, edges), cluster)


def gpus(*links: Link, streams: int = 1, memory_bytes: int = 10**6) -> Cluster:
    """Three GPUs with these links. A bandwidth of 10^9 is a byte a nanosecond."""
    devices = tuple(Device(f"gpu:{i}", "gpu", memory_bytes, 10**12, 10**12, streams=streams) for i in range(3))
    return Cluster("three", devices, links)


def link(src: int, dst: int, **columns) -> Link:
    return Link(f"gpu:{src}", f"gpu:{dst}", 10**9, **columns)


def step(chosen: Problem, *device: int, schedule: str = "fifo", priority: list[int] | None = None) -> StepResult:
    given = None if priority is None else np.array(priority, dtype=np.int64)
    (result,) = simulate(chosen, [Placement(np.array(device, dtype=np.int32), schedule, given)], timeline=True)
    return result


def starts(result: StepResult) -> list[int]:
    assert result.timeline is not None
    return result.timeline.start_ns.tolist()


def peaks(result: StepResult) -> list[int]:
    assert result.peak_memory_bytes is not None
    return result.peak_memory_bytes.tolist()
