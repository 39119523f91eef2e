"""A Grouper that imitated the clusterings of some graphs clusters others."""

import numpy as np
import torch

import gnnplace as gp
from gnnplace.config import files
from gnnplace.policies.tape import Tape
from gnnplace.training.run import assemble

SEEN, UNSEEN = ("squeezenet", "resnet-18", "gru-lm-inference"), ("mobilenet-v2", "densenet-121")


def pairs(counts):
    return (counts * (counts - 1) / 2).sum()


def adjusted_rand(group, other):
    """1 for the same clusters under any names, 0 on average by chance (Hubert and Arabie, 1985)."""
    shared = np.zeros((group.max() + 1, other.max() + 1))
    np.add.at(shared, (group, other), 1)
    together, one, two = pairs(shared), pairs(shared.sum(1)), pairs(shared.sum(0))
    chance = one * two / pairs(np.array([len(group)]))
    return (together - chance) / ((one + two) / 2 - chance)


@torch.no_grad()
def agreement(policy, graph):
    """Of a policy's most probable groups with the clustering of a graph."""
    problem = gp.problem(graph, "k40-2")
    found = policy.group(policy.reset(problem, 1), Tape("argmax", 1))
    return adjusted_rand(found[0].numpy(), policy.grouping_target(problem)["group"][0].numpy())


def test_a_grouper_clusters_graphs_that_it_never_saw_better_than_chance():
    config = files.read_settings("hierarchical", "tuned", ["--training.grouping.updates=40", "--training.updates=0"], "gnn")
    problems = [gp.problem(graph, "k40-2") for graph in SEEN]
    before = assemble.untrained(config, problems, [None] * len(problems)).learner.policy
    after = assemble.train(config, problems, [None] * len(problems)).learner.policy
    for graph in UNSEEN:
        assert agreement(before, graph) < 0.1
        assert agreement(after, graph) > 0.15
