"""Local search over the order of ops within devices. The devices of a placement stay; its priorities change.

A move takes an op of the critical chain that waited for its device (or the sender of a transfer that waited for its
channel), and an op that started on the same device meanwhile. It sets the priority of the first just above that of the
second, or that of the second just below. If no op started meanwhile, the op that ran before runs later, and another op
that was ready at its start runs earlier. In job shops only such exchanges can shorten a schedule (Nowicki and
Smutnicki, 1996). Other moves add random keys to the priorities of a few random ops (Bean, 1994).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64

from gnnplace.baselines.searching.budget import Budget
from gnnplace.placement import RULES, Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Score, StepResult, score
from gnnplace.schedules.critical_chain import Waiting, waiting
from gnnplace.schedules.priorities import priorities

TOGETHER = 4  # moves evaluated together
CHANGES = 3  # the largest number of chain ops that one move changes
SHAKEN, SPREAD = 0.1, 0.02  # the share of moves by random keys, and their range as a share of that of priorities
SPACING = 2**20  # the distance of neighbouring priorities, so that others fit in between


class Reordering(NamedTuple):
    """Priorities, and the score and the result of their step."""

    priority: Int64[np.ndarray, " ops"]
    score: Score
    result: StepResult


def reorder(
    problem: Problem, evaluate: Evaluator, generator: np.random.Generator, *, start: Placement, budget: Budget
) -> Placement:
    """The devices of `start` with the best priorities of the search.

    The result is never worse than `start` under its own schedule or any other rule; it is `start` itself if nothing is
    faster. The search ends early when nothing on the critical chain waits for a device or a channel. The evaluator must
    give timelines. Raises ValueError if an edge needs a link that does not exist.
    """
    rules = [start, *(Placement(start.device, rule) for rule in RULES if rule != start.schedule)]
    rules = rules[: budget.allows(1 + len(RULES))]
    evaluated = partial(_evaluated, problem, budget.metered(evaluate), start.device)
    reorderings = evaluated([spaced(priorities(problem, rule)) for rule in rules])
    first, here = reorderings[0], min(reorderings, key=lambda one: one.score)
    best = here
    waits, chain = _critical(problem, start.device, here)
    while len(chain) and (count := budget.allows(TOGETHER)):
        drawn = [_moved(start.device, here, waits, chain, generator) for _ in range(count)]
        reorderings = evaluated(drawn, here.score)
        better = min(reorderings, key=lambda one: one.score)
        if better.score <= here.score:
            here = better
            waits, chain = _critical(problem, start.device, here)
            best = here if here.score < best.score else best
    return start if best.score >= first.score else Placement(start.device, "given", best.priority)


def reordered(
    problem: Problem,
    start: Placement,
    budget: Budget,
    report: Callable[[Score], object],
    *,
    evaluate: Evaluator,
    seed: int,
) -> Placement:
    """`reorder` as a search of `best`: it draws from a seed and reports no scores."""
    return reorder(problem, evaluate, np.random.default_rng(seed), start=start, budget=budget)


def spaced(priority: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """Priorities in the same order, `SPACING` apart."""
    return np.unique(priority, return_inverse=True)[1].reshape(-1).astype(np.int64) * SPACING


def _evaluated(
    problem: Problem,
    evaluate: Evaluator,
    device: Int32[np.ndarray, " ops"],
    drawn: Sequence[Int64[np.ndarray, " ops"]],
    here: Score | None = None,
) -> list[Reordering]:
    """The results of priorities. The evaluation of a step that scores worse than `here` may stop early."""
    limit_ns = None if here is None else here.limit_ns
    results = evaluate(
        problem, [Placement(device, "given", priority) for priority in drawn], timeline=True, limit_ns=limit_ns
    )
    return [
        Reordering(priority, score(problem, result), result) for priority, result in zip(drawn, results, strict=True)
    ]


def _critical(
    problem: Problem, device: Int32[np.ndarray, " ops"], reordering: Reordering
) -> tuple[Waiting, Int64[np.ndarray, " critical"]]:
    """What ops and transfers waited for, and the nodes of the critical chain that waited for a device or a channel."""
    timeline = reordering.result.timeline
    assert timeline is not None
    waits = waiting(problem, device, timeline)
    chain = waits.chain(int(timeline.end_ns.argmax()))
    return waits, chain[waits.queued[chain]]


def _moved(
    device: Int32[np.ndarray, " ops"],
    here: Reordering,
    waits: Waiting,
    chain: Int64[np.ndarray, " critical"],
    generator: np.random.Generator,
) -> Int64[np.ndarray, " ops"]:
    """A move: priorities with a few changes."""
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
    device: Int32[np.ndarray, " ops"],
    start_ns: Int64[np.ndarray, " ops"],
    waits: Waiting,
    node: int,
    generator: np.random.Generator,
) -> tuple[int, int]:
    """Two ops to exchange, so that a node of the chain waits less: one to run sooner and one to run later.

    They may be the same op.
    """
    late = int(waits.op[node])  # for a transfer its sender, which may end sooner
    beside = device == device[late]
    ran = np.flatnonzero(beside & (start_ns >= waits.ready_ns[late]) & (start_ns < start_ns[late]))
    if len(ran):
        return late, int(generator.choice(ran))
    if node == late:
        before = int(waits.behind[node])
        # ops that could have started instead
        others = np.flatnonzero(beside & (waits.ready_ns <= start_ns[before]) & (start_ns > start_ns[before]))
        if len(others):
            return int(generator.choice(others)), before
    return late, late
