"""The graph of groups: what edges carry, empty groups, and that nothing depends on how many groups there are."""

import numpy as np
import torch
from support.graphs import chains, equal_gpus

from gnnplace.costs.roofline import problem
from gnnplace.graph import CONTROL, ComputationGraph, Op, Output
from gnnplace.policies.encoders.columns import CostColumns, PaperColumns
from gnnplace.policies.encoders.gnn import GNNEncoder
from gnnplace.policies.encoders.kinds import CANONICAL, Vocabulary
from gnnplace.policies.hierarchical.group_graph import GroupGraph
from gnnplace.units.units import group_edges, unit_transfers, units

EDGES = [(0, 0, 1), (0, 0, 2), (0, 0, 3), (1, 0, 3), (2, CONTROL, 3)]


def fan(edges=EDGES):
    """a sends 100 bytes to b, c and d; b sends 10 to d; c -> d is control alone."""
    ops = [Op(name, "Op", (Output(size),), time_ns={"gpu": 10}) for name, size in zip("abcd", (100, 10, 10, 10), strict=True)]
    return problem(ComputationGraph.from_ops("fan", ops, edges), equal_gpus(2))


def edges(group, groups):
    of = fan()
    found = group_edges(unit_transfers(of.graph, units(of.graph, "ops")), np.array(group), groups)
    return list(zip(found.src.tolist(), found.dst.tolist(), found.bytes.tolist(), strict=True))


def test_an_output_counts_once_for_each_group_that_reads_it():
    assert edges([0, 1, 1, 2], 3) == [(0, 1, 100), (0, 2, 100), (1, 2, 10)]
    assert edges([0, 1, 2, 1], 3) == [(0, 1, 100), (0, 2, 100), (2, 1, 0)]
    assert edges([0, 1, 1, 1], 2) == [(0, 1, 100)]
    assert edges([0, 0, 0, 0], 1) == []


def embedded(of, groups, grouping, rounds=2, **knobs):
    torch.manual_seed(0)
    encoder = GroupGraph(CostColumns(), 5, groups, width=8, rounds=rounds, **knobs)
    made = units(of.graph, "ops")
    members = torch.randn(made.num_units, 5, generator=torch.Generator().manual_seed(1))
    return encoder(encoder.constants(of, made), torch.tensor(grouping), members)


def test_an_empty_group_is_zeros_and_changes_nothing():
    few, many = embedded(fan(), 2, [[0, 1, 1, 1]]), embedded(fan(), 5, [[1, 4, 4, 4]])
    torch.testing.assert_close(many[0, [1, 4]], few[0])
    assert (many[0, [0, 2, 3]] == 0).all()


def test_groupings_are_encoded_apart():
    rows = [[0, 1, 1, 2], [0, 0, 0, 0], [2, 1, 0, 1]]
    together = embedded(fan(), 3, rows)
    torch.testing.assert_close(together, torch.cat([embedded(fan(), 3, [row]) for row in rows]))


def test_neighbours_matter_only_with_rounds():
    for rounds, alike in ((2, False), (0, True)):
        linked, unlinked = (embedded(fan(edges), 3, [[0, 1, 1, 2]], rounds) for edges in (EDGES, []))
        assert torch.allclose(linked, unlinked) is alike


def test_several_aggregates_tell_one_neighbour_from_two_equal_ones():
    edge = torch.ones(2, 2)
    for aggregate, alike in (("mean", True), ("several", False)):
        torch.manual_seed(0)
        encoder = GNNEncoder(4, 2, width=8, rounds=1, aggregate=aggregate)
        along = encoder.forward_convs[0]
        hears_one = along(torch.ones(2, 8), torch.tensor([[0], [1]]), edge[:1])[1]
        hears_two = along(torch.ones(3, 8), torch.tensor([[0, 1], [2, 2]]), edge)[2]
        assert torch.allclose(hears_one, hears_two) is alike


def test_what_groups_have_in_common_stays_where_they_are_not_kept_apart():
    rows = [[0, 1, 1, 2]]
    apart, whole = (embedded(fan(), 3, rows, kept_apart=kept) for kept in (True, False))
    assert apart.mean(1).abs().max() < 1e-5 < whole.mean(1).abs().max()


def test_paper_columns_are_kinds_and_shapes():
    of = fan()
    made = units(of.graph, "ops")
    columns = PaperColumns(Vocabulary(("Op", "Add")))
    assert columns.width == 3 + 25 and columns.ops(of, made)[:, :3].tolist() == 4 * [[1, 0, 0]]
    assert columns.sums(of, made)[:, :3].tolist() == 4 * [[1, 0, 0]]
    assert CANONICAL.rows(of.graph).tolist() == 4 * [CANONICAL.size - 1]  # "other"


def test_columns_that_training_never_saw_are_zeroed():
    of = chains(1, 2, 2)
    made = units(of.graph, "ops")
    columns = PaperColumns(Vocabulary(("Add", "Op")))
    encoder = GroupGraph(columns, 5, 2, width=8, rounds=1)
    assert encoder.seen(torch.ones(28)).sum() == 28
    encoder.widen_ranges([encoder.constants(of, made)])
    assert encoder.seen(torch.ones(28))[:3].tolist() == [0, 1, 0]
