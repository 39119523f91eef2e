"""The problem that the simulator's speed is measured on: a random training-step-like graph on one CPU and three GPUs."""

from __future__ import annotations

import numpy as np

from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs import roofline
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.problems import Problem

EDGES_PER_OP = 2.1
WINDOW = 300  # an op mostly reads what the ops before it made ...
FAR_SHARE = 0.1  # ... and sometimes anything, as gradients read activations
ALIAS_SHARE = 0.15  # reshapes, identities, reads of variables, updates in place
CONTROL_SHARE = 0.05


def problem(num_ops: int, rng: np.random.Generator) -> Problem:
    """A problem of `num_ops` ops and 2.1 edges an op, with aliases, control edges, results and parameters, on 4 devices."""
    edges = _edges(num_ops, rng)
    inputs: list[list[int]] = [[] for _ in range(num_ops)]
    for src, output, dst in edges:
        if output == 0:
            inputs[dst].append(src)
    ops = [_op(index, inputs[index], rng) for index in range(num_ops)]
    return roofline.problem(ComputationGraph.from_ops(f"random-{num_ops}", ops, edges), _cluster())


def _edges(num_ops: int, rng: np.random.Generator) -> list[tuple[int, int, int]]:
    edges: set[tuple[int, int]] = set()
    while len(edges) < int(EDGES_PER_OP * num_ops):
        dst = int(rng.integers(1, num_ops))
        first = 0 if rng.random() < FAR_SHARE else max(0, dst - WINDOW)
        edges.add((int(rng.integers(first, dst)), dst))
    return [(src, -1 if rng.random() < CONTROL_SHARE else 0, dst) for src, dst in sorted(edges)]


def _op(index: int, inputs: list[int], rng: np.random.Generator) -> Op:
    alias = (inputs[0], 0) if inputs and rng.random() < ALIAS_SHARE else None
    size = int(2 ** rng.uniform(8, 22))
    return Op(
        name=f"op{index}",
        kind="MatMul",
        outputs=(Output(bytes=size, dtype="float32", alias_of=alias, is_result=bool(rng.random() < 0.01)),),
        flops=int(2 ** rng.uniform(16, 30)),
        persistent_bytes=size if rng.random() < 0.05 else 0,
        workspace_bytes=size if rng.random() < 0.1 else 0,
        kernel=alias is None,
    )


def _cluster() -> Cluster:
    cpu = Device("cpu:0", "cpu", 2**36, 500 * 10**9, 60 * 10**9, launch_ns=1000, dispatch_ns=200)
    gpus = tuple(Device(f"gpu:{i}", "gpu", 12 * 2**30, 4290 * 10**9, 288 * 10**9, launch_ns=5000, dispatch_ns=500) for i in range(3))
    names = [device.name for device in (cpu, *gpus)]
    links = tuple(Link(src, dst, 10 * 10**9, overhead_ns=2000, latency_ns=8000) for src in names for dst in names if src != dst)
    return Cluster("cpu-3xgpu", (cpu, *gpus), links)
