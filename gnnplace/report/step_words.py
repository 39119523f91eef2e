"""A step of several micro-batches in words: what it consists of, and its time for each of them.

A graph without a backward pass and update answers requests; several of them are in flight.
"""

from __future__ import annotations

from gnnplace.graph import NONE, Categorical, ComputationGraph
from gnnplace.report import terminal
from gnnplace.result import micro_batch_ns

MICRO_BATCH = "micro-batch"


def named(graph: ComputationGraph) -> str:
    """The name of the graph, and how many of it are a step: `8 micro-batches of gpt2`."""
    return graph.name if graph.micro_batches == 1 else f"{graph.micro_batches} {several(graph)} of {graph.name}"


def one(graph: ComputationGraph) -> str:
    """What the graph of one micro-batch computes: `micro-batch`, or `request` in inference."""
    return MICRO_BATCH if graph.phase.among(["backward_data", "backward_weight", "update"]).any() else "request"


def several(graph: ComputationGraph) -> str:
    """More than `one`: `micro-batches`, or `requests`."""
    return "micro-batches" if one(graph) == MICRO_BATCH else "requests"


def for_each(graph: ComputationGraph, step_ns: int | None) -> str:
    """The step time and, if a step has several micro-batches, that for each: `9.000 ms, 3.000 ms a micro-batch`."""
    time = terminal.milliseconds(step_ns)
    number = graph.micro_batches
    return time if number == 1 else f"{time}, {terminal.milliseconds(micro_batch_ns(step_ns, number))} a {one(graph)}"


def as_given(graph: ComputationGraph) -> str:
    """`; a micro-batch is gpt2 as given`, or nothing for a step of one."""
    return "" if graph.micro_batches == 1 else f"; a {one(graph)} is {graph.name} as given"


def copies(graph: ComputationGraph) -> Categorical:
    """What each op of a step of several micro-batches is a copy of: `micro-batch 2, replica 1`, `once a step`."""
    assert graph.copies is not None
    record, unit, replicated = graph.copies, one(graph), graph.copies.replicas > 1

    def words(micro_batch: int, replica: int, added: bool) -> str:
        once = "added to the step" if added else "once a step"
        what = once if micro_batch == NONE else f"{'added to ' * added}{unit} {micro_batch}"
        return f"{what}, replica {replica}" if replicated and replica != NONE else what

    columns = (record.micro_batch.tolist(), record.replica.tolist(), record.added.tolist())
    return Categorical.of(map(words, *columns))


def parts(graph: ComputationGraph) -> list[tuple[str, str]]:
    """Numbers of a step of several micro-batches, and what they are: micro-batches, copies, replicas, families."""
    assert graph.copies is not None
    record = graph.copies
    numbers = [(f"{record.micro_batches:,}", f"{several(graph)}, copies {record.placed}")]
    if record.replicas > 1:
        rings = f", in rings of {record.ring_size}" if record.ring_size else ""
        shares_of_all = ", ".join(map(str, record.shares))
        numbers.append((f"{record.replicas:,}", f"replicas, of {shares_of_all} {several(graph)}{rings}"))
    for shares in dict.fromkeys(shares for _, shares in record.family_shares):
        names = [name for name, each in record.family_shares if each == shares]
        layers = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        numbers.append((", ".join(map(str, shares)), f"{several(graph)} on the replicas in {layers}"))
    return numbers
