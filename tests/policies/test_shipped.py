"""The policies that come with the package place what they never saw better than the schedule that they observe, and than at first."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gnnplace as gp
from gnnplace.policies.placing.base_search import best_candidate
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.checkpoint import policy_of, restore_policy
from gnnplace.training.run.description import of_checkpoint
from gnnplace.training.update.rollout import fastest, sampled
from gnnplace.units.units import units

STEPS = [("gat", "k40-4", 1, "together"), ("two-tower", "k40-4", 1, "together"), ("dcn-v2", "v100-8", 4, "together"),
         ("dlrm", "v100-8", 4, "free")]  # fmt: skip
SAMPLES = 12


@pytest.fixture(scope="module")
def problems():
    return [gp.problem(graph, cluster=cluster, micro_batches=number, copies=copies) for graph, cluster, number, copies in STEPS]


def over_base(policy, problem):
    """The best sample's step over that of the base."""
    grouped = units(problem.graph, policy.units)
    base_ns = best_candidate(problem, grouped, policy.rounds.candidates, policy.schedule, simulate).result.feasible_ns
    best = fastest(sampled(policy, problem, SAMPLES, simulate, torch.Generator().manual_seed(0)))[1]
    return best.feasible_ns / base_ns


@pytest.mark.parametrize("name", ["hierarchical-gnn", "hierarchical-gnn-held-out"])
def test_a_shipped_policy_is_better_than_its_base_and_than_its_first_weights(name, problems):
    weights = policy_of(name)
    policy = of_checkpoint(weights).policy.eval()
    first = [np.log(over_base(policy, problem)) for problem in problems]
    restore_policy(weights, policy)
    trained = [np.log(over_base(policy, problem)) for problem in problems]
    assert np.exp(np.mean(trained)) < 0.985 and np.mean(trained) < np.mean(first) - 0.01
