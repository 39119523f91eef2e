"""Groups by graph parsing: which edges join units, how large a group may be, and what a clustering teaches."""

import numpy as np
import torch
from support.graphs import chains

from gnnplace.policies.clustering import clustering
from gnnplace.policies.hierarchical.config import HierarchicalConfig
from gnnplace.policies.hierarchical.parsed import joined
from gnnplace.policies.tape import Tape
from gnnplace.training.update.algorithms.imitate import imitate_groups
from gnnplace.units.units import units


def parts_of(edges, score, work, groups):
    """The parts as sets of units."""
    part = joined(np.array(edges, np.int64).T.reshape(2, -1), np.array(score, float), np.array(work, float), groups)
    return {frozenset(np.flatnonzero(part == each).tolist()) for each in set(part.tolist())}


def test_the_best_edges_join_units_until_few_enough_parts_are_left():
    chain = [(0, 1), (1, 2), (2, 3)]
    assert parts_of(chain, [3, 1, 2], [1] * 4, 2) == {frozenset({0, 1}), frozenset({2, 3})}
    assert parts_of(chain, [1, 3, 2], [1] * 4, 3) == {frozenset({0}), frozenset({1, 2}), frozenset({3})}


def test_no_part_has_more_than_its_share_while_another_edge_can_join():
    """The best edge would make a part of three quarters of the work."""
    assert parts_of([(0, 1), (2, 3)], [9, 1], [3, 3, 1, 1], 3) == {frozenset({0}), frozenset({1}), frozenset({2, 3})}


def test_a_larger_share_is_tried_where_too_many_parts_are_left():
    assert parts_of([(0, 1)], [1], [5, 5], 1) == {frozenset({0, 1})}


def test_without_edges_parts_stay_apart():
    assert parts_of([], [], [1, 1, 1], 2) == {frozenset({0}), frozenset({1}), frozenset({2})}


def test_edges_learn_which_a_clustering_cuts_and_say_so_of_another_graph():
    """Four chains that no edge connects are four parts, however long they are."""
    torch.manual_seed(0)
    knobs = {"groups": 4, "width": 8, "encoder_width": 8, "encoder_rounds": 1, "units": "ops", "kinds": "canonical"}
    config = HierarchicalConfig(features="costs", neighbours="messages", devices="observed", grouper="parsed", **knobs)
    of = chains(4, 6, 2)
    policy = config.build(config.shape([of]), 1, 0)
    target = policy.grouping_target(of)
    parts = clustering(of, units(of.graph, "ops"), 4)
    src, dst = policy.reset(of, 1).grouping.edges
    assert target["edge"][0].tolist() == (parts[src] == parts[dst]).astype(int).tolist()
    optimiser = torch.optim.Adam(policy.grouping_parameters(), lr=0.02)
    before = float(imitate_groups(policy, of, target).detach())
    for _ in range(60):
        optimiser.zero_grad()
        imitate_groups(policy, of, target).backward()
        optimiser.step()
    assert float(imitate_groups(policy, of, target).detach()) < 0.3 * before
    other = chains(4, 9, 2)
    tape = Tape("sample", 2, torch.Generator().manual_seed(0))
    policy.step(policy.reset(other, 2), tape, None)
    group = tape.steps[0]["group"].choice()[0]
    chain = group[units(other.graph, "ops").unit].view(4, 9)
    assert all(len(set(row.tolist())) == 1 for row in chain) and len(set(chain[:, 0].tolist())) == 4
