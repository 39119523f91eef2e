"""Equal budgets of evaluations: the updates of a policy that fit one, and plain searches with as many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnnplace.baselines.annealing import hill_climb
from gnnplace.baselines.random_units import random_units
from gnnplace.baselines.searching.budget import Budget
from gnnplace.baselines.single import fastest, on_each
from gnnplace.config.run import RunConfig
from gnnplace.placement import Placement, Schedule
from gnnplace.policies import registry
from gnnplace.policies.protocol import Policy
from gnnplace.policies.tape import Tape
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.training.update.learning import Learning
from gnnplace.training.update.rollout import rollout


def of_an_episode(config: RunConfig, problem: Problem) -> int:
    """The number of evaluated placements of each sample of a policy."""
    return sum(len(step.results) for step in rollout(_policy(config, problem), problem, Tape("argmax", 1), simulate))


def within(config: RunConfig, problem: Problem, evaluations: int) -> tuple[RunConfig, int]:
    """The run with as many whole updates as a budget allows besides one greedy placement, and its evaluations.

    What a warm start imitates is not counted, nor are the single devices that scale rewards. Raises ValueError if not
    one update fits, and for a policy with a phase of its own, whose evaluations are not limited.
    """
    for phase in Learning(config.training, config.algorithm).of(_policy(config, problem)).objectives:
        if phase.updates:
            raise ValueError(
                f"evaluations: can't be counted where {config.policy.kind} learns in a phase of its own, "
                f"{phase.name!r}; give that no updates"
            )
    episode = of_an_episode(config, problem)
    per_update = config.training.samples * episode
    updates = (evaluations - episode) // per_update
    if updates < 1:
        takes = f"whose update takes {per_update:,} of {problem.graph.name} besides a greedy placement"
        raise ValueError(f"evaluations: {evaluations} are too few for {config.policy.kind}, {takes}")
    training = replace(config.training, updates=updates)
    all_updates = Learning(training, config.algorithm).all_updates
    return replace(config, training=replace(training, greedy_every=all_updates + 1)), updates * per_update + episode


def _policy(config: RunConfig, problem: Problem) -> Policy:
    policy = registry.build(config.policy, config.policy.shape([problem]), config.training.groupings, config.seed)
    assert isinstance(policy, Policy)
    return policy


def searches(problem: Problem, evaluations: int, seed: int, schedule: Schedule) -> dict[str, Placement]:
    """The placements of random search, and of hill climbing from the fastest device alone, whose search counts."""
    alone = on_each(problem, range(problem.num_devices), schedule)
    budget = Budget(evaluations=evaluations)
    start = fastest(problem, alone, budget.metered(simulate))
    climber, drawer = np.random.default_rng(seed), np.random.default_rng(seed)
    return {
        "random": random_units(problem, simulate, drawer, evaluations=evaluations, schedule=schedule),
        "hill-climb": hill_climb(problem, simulate, climber, start=start, budget=budget, schedule=schedule),
    }
