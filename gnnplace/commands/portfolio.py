"""`best` as commands ask for it: the options of its budget, and its winner as a candidate beside those of other planners."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping

from gnnplace import planners
from gnnplace.baselines.fastest import FEASIBLE, Standing
from gnnplace.baselines.searching.budget import Budget
from gnnplace.commands import inputs
from gnnplace.commands.candidates import Candidate, candidate, planned
from gnnplace.commands.usage import Parser
from gnnplace.placement import Placement
from gnnplace.problem import Problem
from gnnplace.report import terminal
from gnnplace.result import Planner
from gnnplace.simulator.simulator import simulate

BEST = "best"


def add_budget_arguments(parser: Parser) -> None:
    """--budget or --evaluations."""
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--budget", metavar="SECONDS", type=_duration, help=f"of {BEST}; e.g. 10s. The result depends on the machine")
    budget.add_argument("--evaluations", metavar="N", type=inputs.positive, help=f"of {BEST}; the same result everywhere")


def best(
    problem: Problem,
    chosen: argparse.Namespace,
    policy: Planner | None = None,
    starts: Mapping[str, Planner] | None = None,
) -> Candidate:
    """The portfolio's winner, by its name; `starts`, where they are given, are asked instead of all."""
    progress = terminal.progress(chosen.quiet)

    def say(planner: str, standing: Standing) -> None:
        progress(f"{planner}: {terminal.milliseconds(standing.step_time_ns)}{'' if standing.feasibility == FEASIBLE else ', infeasible'}")

    def asked(problem: Problem) -> Placement:
        assert policy is not None
        return planned(policy(problem), chosen.schedule)

    started, own = time.perf_counter_ns(), None if policy is None else asked
    winner = planners.portfolio(problem, simulate, chosen.seed, _budget(chosen, problem), chosen.schedule, own, say, starts)
    return candidate(problem, f"{BEST}: {winner.planner}", winner.placement, time.perf_counter_ns() - started)


def _budget(chosen: argparse.Namespace, problem: Problem) -> Budget:
    if chosen.budget is None and chosen.evaluations is None:
        return planners.enough(problem)
    return Budget(seconds=chosen.budget, evaluations=chosen.evaluations)


def _duration(text: str) -> float:
    return inputs.seconds(text.removesuffix("s"))
