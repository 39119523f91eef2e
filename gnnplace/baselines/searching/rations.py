"""Rations of evaluations for planners.

Planners choose among variants by evaluating all of them, and their number depends on devices and memories (the splits
of a pipeline). If evaluations are few, the first planners would use all of them, and one device more would decide which
others run at all. So each planner has a ration. Under a ration the most promising placements come first. A placement
that can't be faster, or was evaluated before, is not evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.baselines.searching.budget import Budget
from gnnplace.cluster import NO_LINK
from gnnplace.graph import NONE
from gnnplace.placement import Placement
from gnnplace.problems import MAX_STEP_NS, Problem
from gnnplace.result import Evaluator, StepResult

Key = bytes


@runtime_checkable
class Limited(Evaluator, Protocol):
    """An evaluator with a ration: `left` is the number of evaluations left, None without a ration."""

    left: int | None


class Rationed:
    """An `Evaluator` of one problem that counts against a budget and evaluates no placement twice.

    Under a ration it skips placements whose `promise` is no faster than the fastest step that fits so far, and
    evaluates the most promising of the others. A skipped placement has an infeasible result without a time, like a step
    cut off at a limit. Evaluations with a timeline or a limit are not remembered and not part of a ration.
    """

    def __init__(self, evaluate: Evaluator, budget: Budget) -> None:
        self._evaluate, self._known, self._fastest_ns = budget.metered(evaluate), dict[Key, StepResult](), float("inf")
        self.left: int | None = None  # of the ration

    def __call__(
        self, problem: Problem, placements: Sequence[Placement], *, timeline: bool = False, limit_ns: int | None = None
    ) -> tuple[StepResult, ...]:
        if timeline or limit_ns is not None:
            return self._evaluate(problem, placements, timeline=timeline, limit_ns=limit_ns)
        keys = [_key(placement) for placement in placements]
        new = {key: placement for key, placement in zip(keys, placements, strict=True) if key not in self._known}
        self._learn(problem, new if self.left is None else self._promising(problem, new, self.left))
        return tuple(
            self._known.get(key) or _left_out(problem, each) for key, each in zip(keys, placements, strict=True)
        )

    def _promising(self, problem: Problem, new: Mapping[Key, Placement], most: int) -> dict[Key, Placement]:
        """The placements that may be faster than the fastest so far, at most `most`, the most promising first."""
        promises = {key: promise(problem, placement) for key, placement in new.items()}
        faster = [key for key, promised in promises.items() if promised.step_time_ns < self._fastest_ns]
        return {key: new[key] for key in sorted(faster, key=promises.__getitem__)[:most]}

    def _learn(self, problem: Problem, new: Mapping[Key, Placement]) -> None:
        results = self._evaluate(problem, list(new.values()))
        self._known |= zip(new, results, strict=True)
        self._fastest_ns = min(
            [self._fastest_ns, *(time_ns for each in results if (time_ns := each.feasible_ns) is not None)]
        )
        self.left = None if self.left is None else self.left - len(new)


def shares(evaluate: Evaluator, count: int) -> Iterator[Evaluator]:
    """The evaluator `count` times, each time with an equal share of the rest of its ration if it has one."""
    if not isinstance(evaluate, Limited) or evaluate.left is None:
        yield from [evaluate] * count
        return
    left = evaluate.left
    for remaining in range(count, 0, -1):
        evaluate.left = share = -(-left // remaining)
        yield evaluate
        left -= share - evaluate.left
    evaluate.left = left


def _key(placement: Placement) -> bytes:
    """A key that is equal for equal placements only; it is short, since there may be hundreds of large placements."""
    parts = (placement.device, placement.priority, placement.fusion)
    return blake2b(
        b"|".join([placement.schedule.encode(), *(b"" if part is None else part.tobytes() for part in parts)])
    ).digest()


def _left_out(problem: Problem, placement: Placement) -> StepResult:
    idle = np.zeros(problem.num_devices, dtype=np.int64)
    return StepResult(placement.schedule, None, "it was not tried", None, idle, transferred_bytes=0, transfers=0)


class Promise(NamedTuple):
    """Lower bounds on the excess and the time of a placement's step; the smallest promise is the best.

    `excess_bytes` counts persistent bytes only.
    """

    excess_bytes: int
    step_time_ns: int


def promise(problem: Problem, placement: Placement) -> Promise:
    """The promise of a placement. The step takes at least as long as each device and each channel is busy.

    The work of a device with several streams may overlap. If a link is missing there is no step: `MAX_STEP_NS`. Fused
    ops may take less time than one by one, so a placement with fusion promises 0 ns.
    """
    ops, device, cluster = np.arange(problem.num_ops), placement.device, problem.cluster
    held = _total(device, problem.graph.persistent_bytes, problem.num_devices)
    excess = int(np.maximum(0, held - cluster.memory_bytes).sum())
    if placement.fusion is not None:
        return Promise(excess, 0)
    busy_ns = -(-_total(device, problem.time_ns[ops, device], problem.num_devices) // cluster.streams)
    return Promise(excess, max(int(busy_ns.max()), _sent_ns(problem, device)))


def _sent_ns(problem: Problem, device: Int32[np.ndarray, " ops"]) -> int:
    """The time that the busiest channel carries transfers: each output is sent once to each device that reads it."""
    graph, cluster = problem.graph, problem.cluster
    src, dst = device[graph.edge_src], device[graph.edge_dst]
    sent = np.flatnonzero((src != dst) & (graph.edge_data != NONE))
    sent = sent[
        np.unique(graph.edge_data[sent].astype(np.int64) * problem.num_devices + dst[sent], return_index=True)[1]
    ]
    link = cluster.link_index[src[sent], dst[sent]]
    if (link == NO_LINK).any():
        return MAX_STEP_NS
    lasts_ns = problem.transfer_ns[graph.edge_data[sent], problem.link_rate[link]]
    return int(_total(cluster.link_channel[link], lasts_ns, len(cluster.links)).max(initial=0))


def _total(
    number: Int32[np.ndarray, " rows"], value: Int64[np.ndarray, " rows"], count: int
) -> Int64[np.ndarray, " count"]:
    """The sum of the values of each number below `count`."""
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, number, value)
    return total
