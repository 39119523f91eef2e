"""Search over the order of ops within the devices of a given placement: priorities around those of the schedules, and of the best so far.

A move looks at an op of the critical chain that waited for its device or, where a transfer waited for its channel, at the sender, and at
an op that ran there meanwhile: one gets a priority just above or just below the other's. Where nothing started meanwhile, what started
before is the op that goes later, and another that was ready then goes sooner. In job shops only such exchanges can shorten a schedule
(Nowicki and Smutnicki, 1996). Other moves add random keys to the priorities of a few ops at random (Bean, 1994).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.baselines.fastest import Standing, standing
from gnnplace.baselines.searching.budget import Budget
from gnnplace.placement import RULES, Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, StepResult
from gnnplace.schedules.critical_chain import Waiting, waiting
from gnnplace.schedules.priorities import priorities

TOGETHER = 4  # moves evaluated at once
CHANGES = 3  # ops of the chain that one move changes, at most
SHAKEN, SPREAD = 0.1, 0.02  # the share of moves by random keys, and how far these reach: this share of the highest priority
SPACING = 2**20  # between the priorities of neighbours, so that there is room for others


class Found(NamedTuple):
    """Priorities, how their step stands, and what its ops waited for."""

    priority: Int64[np.ndarray, " ops"]
    standing: Standing
    result: StepResult


def reorder(problem: Problem, evaluate: Evaluator, generator: np.random.Generator, *, start: Placement, budget: Budget) -> Placement:
    """The same devices under the best priorities that were met; never worse than `start` under its own schedule, or under any other rule.

    `start` is returned where nothing is faster, and as soon as nothing on the critical chain waits for a device or a channel. Evaluates
    with timelines. Raises ValueError where an edge needs a link that does not exist.
    """
    rules = [start, *(Placement(start.device, rule) for rule in RULES if rule != start.schedule)][: budget.allows(1 + len(RULES))]
    found = _evaluated(problem, evaluate, start.device, [spaced(priorities(problem, rule)) for rule in rules], budget)
    first, here = found[0], min(found, key=lambda one: one.standing)
    best = here
    waits, chain = _critical(problem, start.device, here)
    while len(chain) and (count := budget.allows(TOGETHER)):
        drawn = [_moved(start.device, here, waits, chain, generator) for _ in range(count)]
        found = _evaluated(problem, evaluate, start.device, drawn, budget, here.standing)
        better = min(found, key=lambda one: one.standing)
        if better.standing <= here.standing:
            here = better
            waits, chain = _critical(problem, start.device, here)
            best = here if here.standing < best.standing else best
    return start if best.standing >= first.standing else Placement(start.device, "given", best.priority)


def spaced(priority: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """Priorities of the same order, so far apart that others fit between."""
    return np.unique(priority, return_inverse=True)[1].reshape(-1).astype(np.int64) * SPACING


def _evaluated(
    problem: Problem,
    evaluate: Evaluator,
    device: Int32[np.ndarray, " ops"],
    drawn: Sequence[Int64[np.ndarray, " ops"]],
    budget: Budget,
    here: Standing | None = None,
) -> list[Found]:
    """What priorities make of a step; of one that is longer than `here`, perhaps no more than that."""
    limit_ns = None if here is None else here.limit_ns
    results = evaluate(problem, [Placement(device, "given", priority) for priority in drawn], timeline=True, limit_ns=limit_ns)
    budget.spent += len(drawn)
    return [Found(priority, standing(problem, result), result) for priority, result in zip(drawn, results, strict=True)]


def _critical(problem: Problem, device: Int32[np.ndarray, " ops"], found: Found) -> tuple[Waiting, Int64[np.ndarray, " critical"]]:
    """What ops and transfers waited for, and those of the critical chain that waited for a device or a channel."""
    timeline = found.result.timeline
    assert timeline is not None
    waits = waiting(problem, device, timeline)
    chain = waits.chain(int(timeline.end_ns.argmax()))
    return waits, chain[waits.queued[chain]]


def _moved(
    device: Int32[np.ndarray, " ops"], here: Found, waits: Waiting, chain: Int64[np.ndarray, " critical"], generator: np.random.Generator
) -> Int64[np.ndarray, " ops"]:
    """Other priorities."""
    priority, timeline = here.priority.copy(), here.result.timeline
    assert timeline is not None
    if generator.random() < SHAKEN:
        some = generator.integers(len(priority), size=CHANGES)
        reach = max(1, int(SPREAD * (int(priority.max()) - int(priority.min()))))
        priority[some] += generator.integers(-reach, reach + 1, size=CHANGES)
        return priority
    for node in generator.choice(chain, size=min(len(chain), int(generator.integers(1, CHANGES + 1))), replace=False):
        sooner, later = _exchange(device, timeline.start_ns, waits, int(node), generator)
        if generator.random() < 0.5:
            priority[sooner] = priority[later] + 1
        else:
            priority[later] = priority[sooner] - 1
    return priority


def _exchange(
    device: Int32[np.ndarray, " ops"], start_ns: Int64[np.ndarray, " ops"], waits: Waiting, node: int, generator: np.random.Generator
) -> tuple[int, int]:
    """Of what made a node of the chain wait: an op that may run sooner, and one that may run later instead; at worst one and the same."""
    late = int(waits.op[node])  # of a transfer, its sender: it may end sooner
    beside = device == device[late]
    ran = np.flatnonzero(beside & (start_ns >= waits.ready_ns[late]) & (start_ns < start_ns[late]))
    if len(ran):
        return late, int(generator.choice(ran))
    if node == late:
        before = int(waits.behind[node])
        others = np.flatnonzero(beside & (waits.ready_ns <= start_ns[before]) & (start_ns > start_ns[before]))  # could have started instead
        if len(others):
            return int(generator.choice(others)), before
    return late, late
