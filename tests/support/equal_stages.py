"""Networks of equal stages, whose forward and backward passes take given times, on devices with free links."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.problems import Problem
from gnnplace.result import StepResult
from gnnplace.transformations.micro_batches import micro_batches

UNIT_NS = 10**6  # of each pass over a stage
SAVED = 10**6  # bytes that the forward pass of a stage saves for the gradients of inputs and of weights
SENT, FREE = 16, 2**62


def equal_stages(devices: int, stages: int, copies: int, branches: int = 1) -> Problem:
    """A step of so many micro-batches over equal stages: a chain, or branches of equal length and a last stage."""
    return problem(micro_batches(_graph(stages, branches), copies), _cluster(devices))


def held(result: StepResult) -> list[float]:
    """The peak of each device, in saved activations of a stage."""
    assert result.peak_memory_bytes is not None
    return np.round(result.peak_memory_bytes / SAVED, 2).tolist()


def _cluster(devices: int) -> Cluster:
    names = [f"gpu:{index}" for index in range(devices)]
    gpus = tuple(Device(name, "gpu", 10**12, FREE, FREE) for name in names)
    return Cluster("free-links", gpus, tuple(Link(src, dst, FREE) for src, dst in permutations(names, 2)))


def _graph(stages: int, branches: int) -> ComputationGraph:
    """An input, and of each stage: variable, read, forward pass, gradients of inputs and of weights, update."""
    tokens = Op("tokens", "input", (Output(SENT, (4,)),), kernel=False, canonical_kind="input", phase="forward", block=0)
    ops, edges, length = [tokens], [], (stages - 1) // branches
    assert branches == 1 or length * branches == stages - 1
    for stage in range(stages):
        w, read, forward, inputs, weights, update = range(len(ops), len(ops) + 6)
        passes = {"time_ns": {"gpu": UNIT_NS}, "block": stage}
        held = {"kernel": False, "canonical_kind": "variable", "colocation": f"weight.{stage}", "block": stage}
        ops += [
            Op(f"w.{stage}", "w", (Output(0),), persistent_bytes=SENT, phase="other", **held),
            Op(f"read.{stage}", "read", (Output(SENT, alias_of=(w, 0)),), phase="forward", **held),
            Op(f"forward.{stage}", "matmul", (Output(SENT), Output(SAVED)), phase="forward", **passes),
            Op(f"inputs.{stage}", "matmul", (Output(SENT),), phase="backward_data", **passes),
            Op(f"weights.{stage}", "matmul", (Output(SENT),), phase="backward_weight", **passes),
            Op(f"update.{stage}", "update", phase="update", **held | {"kernel": True, "canonical_kind": "update"}),
        ]
        last, ends = stage == stages - 1, branches > 1 and stage % length == length - 1
        above = forward if last else (inputs + 6 * (stages - 1 - stage) if ends else inputs + 6)  # gives the gradient
        below = [forward - 6] if stage and (branches == 1 or stage % length) else [0]
        if last and branches > 1:
            below = [forward - 6 * (stage + 1 - length * branch) for branch in range(1, branches + 1)]
        edges += [(w, 0, read), (read, 0, forward), (read, 0, inputs), (forward, 1, inputs), (forward, 1, weights)]
        edges += [(weights, 0, update), (read, 0, update), (above, 0, inputs), (above, 0, weights)]
        edges += [(source, 0, forward) for source in below]
    return ComputationGraph.from_ops("equal-stages", ops, edges)
