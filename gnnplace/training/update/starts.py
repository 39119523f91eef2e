"""Placements that searches start from, for policies that search as they learn."""

from __future__ import annotations

import numpy as np

from gnnplace.baselines.fastest import fastest
from gnnplace.baselines.sampled_lists import list_schedules
from gnnplace.baselines.single import single_gpu
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator


def start(problem: Problem, evaluate: Evaluator, generator: np.random.Generator, lists: int) -> Placement:
    """The fastest of random list schedules, from 1 to `lists`; of 0 the fastest device alone (`protocol.Starts`)."""
    if not lists:
        return single_gpu(problem, evaluate)
    source, count = list_schedules(problem, generator), int(generator.integers(1, lists + 1))
    return fastest(problem, [source() for _ in range(count)], evaluate)
