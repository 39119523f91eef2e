"""What two graphs of a step of micro-batches say otherwise."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from support.plain_repetition import records

from gnnplace.graph import ComputationGraph


def step_differences(ours: ComputationGraph, theirs: ComputationGraph) -> list[str]:
    """The first op, and every other part, in which two graphs are not the same. Names of colocation groups don't count."""
    (ops, edges), (other_ops, other_edges) = records(ours), records(theirs)
    found = [f"{a} is not {b}" for a, b in zip(ops, other_ops, strict=False) if replace(a, colocation=b.colocation) != b][:1]
    pairs = {
        "names": (list(ours.op_names), list(theirs.op_names)),
        "edges": (sorted(set(edges) - set(other_edges)), sorted(set(other_edges) - set(edges))),
        "groups": (groups(ours), groups(theirs)),
        "times": (set(ours.given_keys), set(theirs.given_keys)),
    }
    assert ours.copies is not None and theirs.copies is not None
    for column in ("source", "micro_batch", "replica", "added"):
        pairs[column] = (getattr(ours.copies, column).tolist(), getattr(theirs.copies, column).tolist())
    for field in ("shares", "placed", "shared", "one_home", "family_shares", "ring_size"):
        pairs[field] = (getattr(ours.copies, field), getattr(theirs.copies, field))
    return found + [f"{what}: {a} is not {b}" for what, (a, b) in pairs.items() if a != b]


def groups(graph: ComputationGraph) -> set[frozenset[str]]:
    """The names of the ops of each colocation group."""
    members = defaultdict(set)
    for op, name in enumerate(graph.op_names):
        members[graph.colocation[op]].add(name)
    return {frozenset(names) for group, names in members.items() if group is not None}
