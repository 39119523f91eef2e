"""Fusion by priorities, plainly: "Learning to Fuse" with every rule of docs/execution-model.md asked anew for each pair."""

from __future__ import annotations

from support.plain_fusion import refused

BACKWARD = ("backward_data", "backward_weight")


def by_priority(problem, graph: dict, order: list[int], device: list[int] | None, most_ops: int) -> list[int]:
    """Labels: each op of an order joins the other end of the largest tensor that allows it, of those that it reads or, backward, makes."""
    ops, fusion = graph["ops"], list(range(len(graph["ops"])))
    data = sorted({tuple(edge) for edge in graph["edges"] if edge[1] >= 0})
    for op in order:
        backward = ops[op].get("phase") in BACKWARD
        ends = [(d, s, k) for s, k, d in data if s == op] if backward else [(s, s, k) for s, k, d in data if d == op]
        for other, *_ in sorted(ends, key=lambda end: (-ops[end[1]]["outputs"][end[2]]["bytes"], end[0])):
            joined = [fusion[other] if label == fusion[op] else label for label in fusion]
            group = [i for i, label in enumerate(joined) if label == joined[op]]
            if (
                fusion[other] != fusion[op]
                and len(group) <= most_ops
                and not refused(graph, [0] * len(ops) if device is None else device, joined)
                and somewhere(problem, ops, joined, op)
            ):
                fusion = joined
                break
    return [fusion.index(label) for label in fusion]


def somewhere(problem, ops: list[dict], fusion: list[int], op: int) -> bool:
    """Whether a device allows all that stands where an op does, for fused and colocated ops."""
    tied = {op}
    for _ in ops:
        groups, colocated = {fusion[i] for i in tied}, {ops[i].get("colocation") for i in tied} - {None}
        tied |= {i for i, fields in enumerate(ops) if fusion[i] in groups or fields.get("colocation") in colocated}
    return bool(problem.allowed[sorted(tied)].all(axis=0).any())
