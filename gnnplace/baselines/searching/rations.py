"""What planners may try: each a share of the evaluations, what promises most first, and nothing that can't be faster or
was tried before.

Planners choose among variants by evaluating all of them. How many there are depends on devices and memories (a
pipeline's splits), so where evaluations are few, the first planners would use all, and one device more would decide
which others are asked at all.
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
    """An evaluator with a ration: `left` is what is left of it, None where there is none."""

    left: int | None


class Rationed:
    """An `Evaluator` of one problem that counts against a budget, evaluates no placement twice, and keeps to a ration
    where it has one.

    Under a ration it evaluates no placement whose `promise` is no faster than what it knows to fit, and of others those
    that promise most. What it leaves out comes back as infeasible and without a time, as what is cut off at a limit.
    What is asked with a timeline or a limit is evaluated each time, and is not part of a ration.
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
        """Those that may be faster than what is known, the best first, `most` of them at most."""
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
    """An evaluator again and again, each time with an equal share of what is left of its ration, where it has one."""
    if not isinstance(evaluate, Limited) or evaluate.left is None:
        yield from [evaluate] * count
        return
    left = evaluate.left
    for to_come in range(count, 0, -1):
        evaluate.left = share = -(-left // to_come)
        yield evaluate
        left -= share - evaluate.left
    evaluate.left = left


def _key(placement: Placement) -> bytes:
    """What is equal of equal placements; short, since there may be hundreds of large ones."""
    parts = (placement.device, placement.priority, placement.fusion)
    return blake2b(
        b"|".join([placement.schedule.encode(), *(b"" if part is None else part.tobytes() for part in parts)])
    ).digest()


def _left_out(problem: Problem, placement: Placement) -> StepResult:
    nothing = np.zeros(problem.num_devices, dtype=np.int64)
    return StepResult(placement.schedule, None, "it was not tried", None, nothing, transferred_bytes=0, transfers=0)


class Promise(NamedTuple):
    """What every step of a placement has at least; the least promises most.

    `excess_bytes` is of what ops hold throughout.
    """

    excess_bytes: int
    step_time_ns: int


def promise(problem: Problem, placement: Placement) -> Promise:
    """No device or channel is busy for longer than the step takes, none of their work overlaps but on the streams of a
    device.

    Where a link is missing there is no step: `MAX_STEP_NS`. Fused ops may take less than one by one, so such a
    placement may take no time.
    """
    ops, device, cluster = np.arange(problem.num_ops), placement.device, problem.cluster
    held = _total(device, problem.graph.persistent_bytes, problem.num_devices)
    excess = int(np.maximum(0, held - cluster.memory_bytes).sum())
    if placement.fusion is not None:
        return Promise(excess, 0)
    busy_ns = -(-_total(device, problem.time_ns[ops, device], problem.num_devices) // cluster.streams)
    return Promise(excess, max(int(busy_ns.max()), _sent_ns(problem, device)))


def _sent_ns(problem: Problem, device: Int32[np.ndarray, " ops"]) -> int:
    """For how long the busiest channel carries transfers: each output is sent once to each device that reads it."""
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
    of: Int32[np.ndarray, " rows"], value: Int64[np.ndarray, " rows"], count: int
) -> Int64[np.ndarray, " count"]:
    """The sum of values by number."""
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, of, value)
    return total
