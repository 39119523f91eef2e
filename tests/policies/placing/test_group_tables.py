"""Groups as units of a placer: their order, and tables that are those of the contracted graph."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import chains, equal_gpus
from support.random_problems import random_case

from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.policies.placing.group_tables import PlacedGroups, group_order, group_tables, tables_of_units
from gnnplace.policies.placing.unit_tables import unit_tables
from gnnplace.units.units import Units, units


def test_groups_are_ordered_by_when_their_work_can_start_and_empty_ones_come_last():
    ops = [Op(f"o{i}", "Op", (Output(1),), time_ns={"gpu": time}) for i, time in enumerate((10, 30, 10, 10))]
    of = problem(ComputationGraph.from_ops("chain", ops, [(i, 0, i + 1) for i in range(3)]), equal_gpus(2))
    starts = tables_of_units(of, units(of.graph, "ops")).starts  # 0, 10, 40, 50
    order, used = group_order(starts, np.array([3, 1, 1, 3]), 5)  # (10 * 30 + 40 * 10) / 40 and (0 + 50 * 10) / 20
    assert order.tolist() == [1, 3, 0, 2, 4] and used == 2


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 400), st.integers(0, 2**16))
def test_tables_of_groups_are_those_of_the_graph_that_they_make(seed, draw):
    of = random_case(seed).problem()
    made = units(of.graph, "ops")
    grouping = np.random.default_rng(draw).integers(4, size=made.num_units)
    _, label = np.unique(grouping, return_inverse=True)
    contracted = Units("ops", label[made.unit].astype(np.int32), int(label.max()) + 1)
    tables = tables_of_units(of, made)
    order, used = group_order(tables.starts, grouping, 4)
    found = group_tables(tables, grouping, order[:used], 4)
    expected = unit_tables(of, contracted, np.searchsorted(np.unique(grouping), order[:used]))
    for name in found._fields:
        if name != "block":  # a group's block is that of most of its units' work
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


def placed(samples=4):
    of = chains(3, 2, 2)
    grouping = torch.tensor([[0, 0, 2, 2, 2, 0], [1, 1, 1, 1, 1, 1]])
    return PlacedGroups(tables_of_units(of, units(of.graph, "ops")), grouping, 3, samples)


def test_replay_observes_what_the_turns_did():
    device = torch.tensor([[0, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 1]])
    growing, seen = placed(), []
    for turn in range(3):
        seen.append(growing.observe())
        growing.place(device[:, turn])
    torch.testing.assert_close(placed().replay(device), torch.stack(seen, dim=1), rtol=0, atol=0)
    assert (seen[2] == 0).all() and (seen[1][2:] == 0).all() and (seen[1][:2] != 0).any()


def test_turns_of_empty_groups_come_last():
    assert placed().used.tolist() == [[True, True, False], [True, False, False]]
    assert placed().order.tolist() == [[0, 2, 1], [1, 0, 2]]
