"""The critical chain of a step in words: stretches in which one device or link works on one part of the network."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gnnplace.fused import fused
from gnnplace.graph import NONE, ComputationGraph
from gnnplace.placement import Placement, check
from gnnplace.problems import Problem
from gnnplace.result import StepResult, Timeline
from gnnplace.schedules.critical_chain import Waiting, waiting
from gnnplace.simulator.simulator import simulate
from gnnplace.units.modules import Modules, modules

MOST_STRETCHES = 30


class Stretch(NamedTuple):
    """A part of the critical chain in one place: ops of one device, or transfers over one link.

    `why` is the reason why the first of them started when it did. `micro_batches` are those of its ops, or of the ops
    whose outputs are sent; none for what runs once, and in a step of one.
    """

    start_ns: int
    end_ns: int
    where: str
    what: str
    nodes: int  # ops or transfers
    why: str
    micro_batches: tuple[int, ...] = ()


class Step(NamedTuple):
    """A placement simulated with a timeline, and the waits of its ops and transfers.

    A placement that fuses ops has the fused problem, with one op for each group of fused ops.
    """

    problem: Problem
    placement: Placement
    result: StepResult
    timeline: Timeline
    waits: Waiting
    modules: Modules

    @property
    def step_time_ns(self) -> int:
        assert self.result.step_time_ns is not None
        return self.result.step_time_ns


def stepped(problem: Problem, placement: Placement) -> Step:
    """Simulates a placement. Raises ValueError if it has no step (see `placement.check`)."""
    if placement.fusion is not None:
        coarse = fused(problem, placement.fusion)
        problem, placement = coarse.problem, coarse.contracted(placement)
    reason = check(problem, placement)
    if reason is not None:
        raise ValueError(f"placement: has no step: {reason}")
    (result,) = simulate(problem, [placement], timeline=True)
    assert result.timeline is not None
    waits = waiting(problem, placement.device, result.timeline)
    return Step(problem, placement, result, result.timeline, waits, modules(problem.graph))


def stretches(step: Step) -> list[Stretch]:
    """The critical chain in order of time. Neighbours in one place with one module and phase are one stretch."""
    waits = step.waits
    chain = waits.chain(int(step.timeline.end_ns.argmax()))[::-1]
    ends = np.append(waits.start_ns[chain[1:]], step.step_time_ns)
    parts: list[Stretch] = []
    if waits.start_ns[chain[0]]:
        parts.append(
            Stretch(0, int(waits.start_ns[chain[0]]), "-", "a copy or a receiving channel", 1, "the step begins")
        )
    for node, end in zip(chain.tolist(), ends.tolist(), strict=True):
        part = Stretch(
            int(waits.start_ns[node]), end, _where(step, node), _what(step, node), 1, because(step, node),
            () if (of := micro_batch_of(step.problem.graph, int(waits.op[node]))) is None else (of,),
        )  # fmt: skip
        if parts and (parts[-1].where, parts[-1].what) == (part.where, part.what):
            parts[-1] = _both(parts[-1], part, part.where)
        else:
            parts.append(part)
    return parts


def micro_batch_of(graph: ComputationGraph, op: int) -> int | None:
    """The micro-batch of an op in a step of several; None if it runs once."""
    of = NONE if graph.copies is None else int(graph.copies.micro_batch[op])
    return None if of == NONE else of


def shortened(stretches: list[Stretch]) -> list[Stretch]:
    """At most `MOST_STRETCHES`: neighbours in one place are joined first, then the two neighbours of least time."""
    if len(stretches) <= MOST_STRETCHES:
        return stretches
    joined: list[Stretch] = []
    for stretch in stretches:
        if joined and joined[-1].where == stretch.where:
            joined[-1] = _both(joined[-1], stretch, joined[-1].where)
        else:
            joined.append(stretch)
    while len(joined) > MOST_STRETCHES:
        lengths = [left.end_ns - left.start_ns + right.end_ns - right.start_ns for left, right in pairwise(joined)]
        at = int(np.argmin(lengths))
        left, right = joined[at : at + 2]
        joined[at : at + 2] = [_both(left, right, left.where if left.where == right.where else "several")]
    return joined


def _both(left: Stretch, right: Stretch, where: str) -> Stretch:
    first, last = left.what.split(" ... ")[0], right.what.split(" ... ")[-1]
    what = first if first == last else f"{first} ... {last}"
    of = tuple(sorted({*left.micro_batches, *right.micro_batches}))
    return Stretch(left.start_ns, right.end_ns, where, what, left.nodes + right.nodes, left.why, of)


def _where(step: Step, node: int) -> str:
    """The device of an op, or the link of a transfer."""
    names, timeline = step.problem.cluster.device_names, step.timeline
    transfer = node - step.problem.num_ops
    if transfer < 0:
        return names[step.placement.device[node]]
    return f"{names[timeline.transfer_src[transfer]]} -> {names[timeline.transfer_dst[transfer]]}"


def _what(step: Step, node: int) -> str:
    """The phase and the module of an op, or of the op whose output a transfer sends."""
    op, graph = int(step.waits.op[node]), step.problem.graph
    return f"{graph.phase[op] or 'step'} of {step.modules.names[step.modules.module[op]]}"


def because(step: Step, node: int) -> str:
    """Why an op or a transfer started when it did."""
    waits, ops = step.waits, step.problem.num_ops
    before, place = int(waits.behind[node]), _where(step, node)
    if node < ops and waits.queued[node]:
        late = int(waits.start_ns[node] - waits.ready_ns[node])
        return f"{place} was busy with {_named_node(step, before)}; its inputs were there {late / 1e6:,.3f} ms earlier"
    if node >= ops and waits.queued[node]:
        return f"the channel of {place} was busy"
    if before == NONE:
        return "the step begins" if not waits.start_ns[node] else "a device copied, or a receiving channel was busy"
    return (
        f"{_named_node(step, before)} ended"
        if before < ops
        else f"{_named_node(step, before)} arrived over {_where(step, before)}"
    )


def _named_node(step: Step, node: int) -> str:
    return step.problem.graph.op_names[int(step.waits.op[node])]
