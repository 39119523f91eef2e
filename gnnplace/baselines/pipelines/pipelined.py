"""Planners of published pipeline schedules: the fastest of several cuts into stages, in the order of the schedule."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Int64

from gnnplace.baselines.pipelines.actions import Rule, Table
from gnnplace.baselines.pipelines.orders import placed
from gnnplace.baselines.pipelines.stages import cuts
from gnnplace.baselines.single import fastest
from gnnplace.graph import ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator

Placed = Callable[[Int64[np.ndarray, " ops"], Int64[np.ndarray, " stages"], Table], Placement]


def pipelined(problem: Problem, evaluate: Evaluator, *, rule: Rule) -> Placement:
    """The fastest placement of a schedule, on as many accelerators as have a stage.

    The graph is a step of several micro-batches on one replica.
    """
    return fastest(problem, proposals(problem, rule, partial(placed, problem)), evaluate)


def proposals(problem: Problem, rule: Rule, *place_stages: Placed) -> list[Placement]:
    """What each of `place_stages` makes of each cut for a schedule: of stages of ops, their devices, and actions."""
    assert several(problem.graph)
    stages = cuts(problem, rule)
    placements = [place(*cut) for place in place_stages for cut in stages]
    return list({(each.device.tobytes(), np.asarray(each.priority).tobytes()): each for each in placements}.values())


def several(graph: ComputationGraph) -> bool:
    """Whether each replica of a step has as many of several micro-batches, and copies stand together."""
    copies = graph.copies
    return (
        copies is not None
        and copies.placed == "together"
        and len(set(copies.shares)) == 1
        and copies.shares[0] > 1
        and not copies.one_home
        and not copies.family_shares
    )
