"""Clusterings numbered by time, and groups that keep to the devices of a placement."""

import numpy as np
import pytest
from support.graphs import chains, equal_gpus, op

from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph
from gnnplace.policies.clustering import by_time, clustering, groups_within
from gnnplace.schedules.paths import UnitStarts, unit_starts
from gnnplace.units.units import units


def chain(length):
    ops = [op(f"o{i}", 10, 100) for i in range(length)]
    return problem(ComputationGraph.from_ops("chain", ops, [(i, 0, i + 1) for i in range(length - 1)]), equal_gpus(2))


def test_a_chain_is_cut_into_equal_stretches_numbered_by_time():
    of = chain(32)
    group = clustering(of, units(of.graph, "ops"), 4)
    assert (np.diff(group) >= 0).all() and set(group.tolist()) == {0, 1, 2, 3}
    assert np.bincount(group).max() <= 10


def test_numbers_of_few_parts_are_spread_over_all_groups():
    starts = UnitStarts(np.array([1.0, 1.0, 2.0]), np.array([50.0, 0.0, 40.0]))
    assert by_time(starts, np.array([7, 3, 9]), 9).tolist() == [6, 0, 3]
    assert by_time(starts, np.array([7, 3, 7]), 2).tolist() == [1, 0, 1]


@pytest.mark.parametrize("groups", [1, 2, 5, 100])
def test_any_number_of_groups_is_served(groups):
    of = chains(3, 4, 2)
    group = clustering(of, units(of.graph, "ops"), groups)
    assert group.min() == 0 and group.max() < groups and len(set(group.tolist())) <= min(groups, 12)


def test_groups_keep_to_one_device_and_busier_ones_get_more():
    of = chains(4, 8, 3)
    made = units(of.graph, "ops")
    device = np.repeat([2, 2, 2, 0], 8)[np.argsort(made.unit)]
    group = groups_within(of, made, device, 8)
    owners = {g: set(device[group == g].tolist()) for g in set(group.tolist())}
    assert all(len(found) == 1 for found in owners.values())
    counts = [sum(found == {d} for found in owners.values()) for d in (0, 2)]
    assert counts[0] == 2 and 4 <= counts[1] <= 6
    starts = unit_starts(of, made)
    means = [starts.start_by_work[group == g].sum() / starts.work_ns[group == g].sum() for g in sorted(owners)]
    assert means == sorted(means)


def test_devices_with_least_work_share_a_group_where_there_are_too_few():
    of = chains(1, 6, 3)
    group = groups_within(of, units(of.graph, "ops"), np.array([0, 0, 0, 1, 1, 2]), 2)
    assert group.tolist() == [0, 0, 0, 1, 1, 1]
