"""A placement of a step, lifted to a step of k times as many micro-batches.

The micro-batches come in k blocks, each of which stands where the given ones stand: on the same replicas in every
family. A block begins a *period* after the
one before it, and within a block ops keep the order in which they start in the given step. With the length of the given
step as the period, each device has as many micro-batches in flight as there; a shorter period lets a block begin while
the one before it ends, as pipelines do (the repetend of Lin et al., Tessel, HPCA 2024).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.graph import NONE, ComputationGraph, Copies
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Timeline, score
from gnnplace.schedules.moments import by_moment, raised, reached
from gnnplace.simulator.simulator import simulate
from gnnplace.step_forms import reformed
from gnnplace.transformations.families import assigned
from gnnplace.transformations.parallelism import Parallelism
from gnnplace.units.units import colocation_closure


class _Blocks(NamedTuple):
    """Of each op of the larger step its counterpart in the given one (`NONE`: there is none), and its block.

    The block of what runs once is the first, or the last if it waits for a micro-batch.
    """

    counterpart: Int64[np.ndarray, " ops"]
    block: Int64[np.ndarray, " ops"]


def grown(problem: Problem, times: int) -> Problem:
    """The problem of so many times as many micro-batches, in the same form.

    >>> import gnnplace as gp
    >>> grown(gp.problem("dlrm", cluster="k40-2", micro_batches=4), 2).graph.micro_batches
    8
    """
    form = Parallelism.in_graph(problem.graph)
    larger = replace(
        form,
        micro_batches=times * form.micro_batches,
        shares=tuple(times * share for share in form.shares),
        family_shares=tuple((layers, tuple(times * share for share in each)) for layers, each in form.family_shares),
    )
    return reformed(problem, larger.of(_copies(problem).original))


def lifted(placement: Placement, problem: Problem, larger: Problem) -> Placement:
    """The best of several periods, in the order of the given step, kept strictly or as priorities.

    Raises ValueError if `larger` is not the same form of several times as many micro-batches, for a placement without a
    step, and for one that fuses ops.

        >>> import gnnplace as gp
        >>> problem = gp.problem("dlrm", cluster="k40-2", micro_batches=2)
        >>> twice = grown(problem, 2)
        >>> gp.simulate(twice, lifted(gp.place(problem, "zb-h1"), problem, twice)).infeasible is None
        True
    """
    if placement.fusion is not None:
        raise ValueError("fusion: a placement that fuses ops is not lifted; place ops that run by themselves")
    blocks = _blocks(problem, larger)
    (result,) = simulate(problem, [placement], timeline=True)
    if result.timeline is None:
        raise ValueError(f"placement: has no step to lift: {result.infeasible}")
    device, graph = _devices(larger, placement, blocks), larger.graph
    proposals = []
    for period_ns in _periods_ns(problem, placement, result.timeline):
        priority = by_moment(_moments(graph, result.timeline, blocks, period_ns))
        proposals += [Placement(device, "in-order", priority), Placement(device, "given", priority)]
    results = simulate(larger, proposals)
    return proposals[min(range(len(proposals)), key=lambda number: score(larger, results[number]))]


def _copies(problem: Problem) -> Copies:
    if problem.graph.copies is None:
        raise ValueError(f"{problem.graph.name}: is a step of one micro-batch; a step of several is lifted")
    return problem.graph.copies


def _blocks(problem: Problem, larger: Problem) -> _Blocks:
    small, large, graph = _copies(problem), _copies(larger), larger.graph
    times, rest = divmod(large.micro_batches, small.micro_batches)
    if rest or not _same(small, large, times):
        raise ValueError(
            f"larger: {large.micro_batches} micro-batches ({large.placed}, shares {large.shares}) are no multiple of "
            f"{small.micro_batches} ({small.placed}, shares {small.shares}) of the same graph and families"
        )
    given, block = _repeated(small, large)
    number = {key: op for op, key in enumerate(_keys(problem.graph, small.micro_batch))}
    wanted = np.where(large.micro_batch == NONE, NONE, given[large.micro_batch])
    keys = zip(_stems(graph), wanted.tolist(), strict=True)
    counterpart = np.array([number.get(key, NONE) for key in keys], dtype=np.int64)
    once = np.where(reached(graph, large.micro_batch != NONE), times - 1, 0)
    return _Blocks(counterpart, np.where(large.micro_batch == NONE, once, block[large.micro_batch]))


def _same(small: Copies, large: Copies, times: int) -> bool:
    """Whether both are one form, the shares of `large` so many times those of `small`."""
    few, many = (dict([("", copies.shares), *copies.family_shares]) for copies in (small, large))
    shares = {name: tuple(times * share for share in each) for name, each in few.items()}
    alike = (small.original is large.original, small.placed == large.placed, small.ring_size == large.ring_size)
    return all(alike) and set(small.one_home) == set(large.one_home) and shares == many


def _repeated(
    small: Copies, large: Copies
) -> tuple[Int64[np.ndarray, " micro_batches"], Int64[np.ndarray, " micro_batches"]]:
    """Of each micro-batch of the larger step that of the given one whose places it has, and its block.

    Both are on the same replica in every family; of those that are, the given ones recur in turn.
    """
    given, block = np.zeros((2, large.micro_batches), dtype=np.int64)
    here, there = _replicas(small), _replicas(large)
    for replicas in np.unique(there, axis=0):
        few, many = (np.flatnonzero((each == replicas).all(axis=1)) for each in (here, there))
        block[many], turn = np.divmod(np.arange(len(many)), len(few))
        given[many] = few[turn]
    return given, block


def _replicas(copies: Copies) -> Int64[np.ndarray, "micro_batches families"]:
    """The replica of each micro-batch, in the step and in its families."""
    every = [copies.shares, *(shares for _, shares in copies.family_shares)]
    return np.stack([assigned(copies.shares, shares) for shares in every], axis=1)


def _keys(graph: ComputationGraph, micro_batch: Int32[np.ndarray, " ops"]) -> Iterator[tuple[str, int]]:
    """What names an op in steps of any number of micro-batches: its name without the number, and the number."""
    return zip(_stems(graph), micro_batch.tolist(), strict=True)


def _stems(graph: ComputationGraph) -> Iterator[str]:
    """The names without the number of the micro-batch: `a@` of `a@3`, `w/fetch@b` of `w/fetch@3b`."""
    assert graph.copies is not None
    for name, number in zip(graph.op_names, graph.copies.micro_batch.tolist(), strict=True):
        yield name if number == NONE else "@".join(name.rsplit(f"@{number}", 1))


def _periods_ns(problem: Problem, placement: Placement, timeline: Timeline) -> list[int]:
    """The length of the given step's micro-batches, that of the busiest device's work on them, and one between."""
    again = np.flatnonzero(_copies(problem).micro_batch != NONE)
    length = int(timeline.end_ns[again].max() - timeline.start_ns[again].min())
    device, spent = placement.device[again], timeline.end_ns[again] - timeline.start_ns[again]
    work = np.bincount(device, spent, problem.num_devices) / problem.cluster.streams
    busiest = min(length, int(work.max()))
    return sorted({busiest, (busiest + length) // 2, length})


def _devices(larger: Problem, placement: Placement, blocks: _Blocks) -> Int32[np.ndarray, " ops"]:
    """The devices of the counterparts; what has none (the first sum of a block) stands with its group or its input."""
    graph = larger.graph
    device = np.where(blocks.counterpart == NONE, NONE, placement.device[blocks.counterpart]).astype(np.int32)
    closure, of_group = colocation_closure(graph), np.full(larger.num_ops, NONE, dtype=np.int32)
    np.maximum.at(of_group, closure, device)
    device = np.where(device == NONE, of_group[closure], device)
    for op in graph.order[device[graph.order] == NONE].tolist():
        inputs = device[graph.edge_src[graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]]]
        device[op] = next((at for at in inputs.tolist() if at != NONE), 0)
    return device.astype(np.int32)


def _moments(graph: ComputationGraph, timeline: Timeline, blocks: _Blocks, period_ns: int) -> Int64[np.ndarray, " ops"]:
    """When each op would start: as in the given step, its block so many periods later, and after all that it reads."""
    begin = np.where(blocks.counterpart == NONE, 0, timeline.start_ns[blocks.counterpart])
    return raised(graph, begin + blocks.block * period_ns, 1)
