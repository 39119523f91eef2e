"""Small graphs and clusters that many tests share."""

from __future__ import annotations

from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.problems import Problem


def op(name: str, time_ns: int = 10, size: int = 0, **columns) -> Op:
    """An op with one output of `size` bytes that lasts `time_ns` on every device kind."""
    return Op(name, "Op", (Output(size),), time_ns={"gpu": time_ns, "cpu": time_ns}, **columns)


def equal_gpus(count: int, memory_bytes: int = 10**9, bandwidth: int = 10**9) -> Cluster:
    """`count` equal GPUs, all linked: 1 byte a nanosecond."""
    devices = tuple(Device(f"gpu:{i}", "gpu", memory_bytes, 10**12, 10**12) for i in range(count))
    links = tuple(Link(a.name, b.name, bandwidth) for a in devices for b in devices if a is not b)
    return Cluster(f"gpus-{count}", devices, links)


def chains(count: int, length: int, devices: int, time_ns: int = 1000, size: int = 100) -> Problem:
    """`count` independent chains of `length` ops on `devices` equal GPUs: as many as chains reach the optimum."""
    ops = [op(f"c{c}/{i}", time_ns, size) for c in range(count) for i in range(length)]
    edges = [(c * length + i, 0, c * length + i + 1) for c in range(count) for i in range(length - 1)]
    return problem(ComputationGraph.from_ops(f"chains-{count}x{length}", ops, edges), equal_gpus(devices))


def op_of(graph: ComputationGraph, name: str) -> int:
    """The index of an op."""
    return graph.op_names.index(name)


def edges_of(graph: ComputationGraph) -> set[tuple[str, int, str]]:
    """The edges of a graph, by names."""
    names = graph.op_names
    return {
        (names[src], output, names[dst])
        for src, output, dst in zip(graph.edge_src.tolist(), graph.edge_output.tolist(), graph.edge_dst.tolist(), strict=True)
    }
