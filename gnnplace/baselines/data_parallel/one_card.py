"""Gradient accumulation on one card: the micro-batches run one after another, and one update follows."""

from __future__ import annotations

from gnnplace.baselines.data_parallel.ddp import replicated_on
from gnnplace.baselines.data_parallel.shares import shares
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Proposal


def one_card(problem: Problem, evaluate: Evaluator) -> Proposal:
    """A single replica on the fastest accelerator. Nothing is chosen, so nothing is evaluated."""
    *_, alone = shares(problem)
    return replicated_on(problem, alone)
