"""What ColocRL reads of colocation groups, by hand."""

import numpy as np
import pytest
import torch
from support.graphs import chains, equal_gpus

from gnnplace.costs.roofline import problem
from gnnplace.graph import CONTROL, ComputationGraph, Op, Output
from gnnplace.policies.colocrl.policy import ColocationGroups
from gnnplace.policies.encoders.kinds import Vocabulary
from gnnplace.policies.encoders.paper import KIND_WIDTH, SHAPE_WIDTH
from gnnplace.units.units import units

KINDS = Vocabulary(("MatMul", "Relu"))


def four_groups():
    """Two colocated ops, which two others read, and one behind a control edge."""
    ops = [
        Op("a", "MatMul", (Output(8, (2, 4)), Output(8, (3,))), colocation="w"),
        Op("b", "Relu", (Output(8, (6, 8)),), colocation="w"),
        Op("c", "Relu", (Output(8, (4, 6)),)),
        Op("d", "Softmax", (Output(8),)),
        Op("e", "MatMul", ()),
    ]
    return problem(ComputationGraph.from_ops("g", ops, [(0, 0, 1), (0, 0, 2), (1, 0, 3), (2, CONTROL, 4)]), equal_gpus(2))


def constants(groups=6):
    of = four_groups()
    return ColocationGroups(KINDS, groups).constants(of, units(of.graph, "ops"))


def test_types_are_shares_of_the_members():
    assert constants().types.tolist() == [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]  # all other kinds share the last column


def test_shapes_are_means_of_the_members_padded_with_zeros_and_standardised():
    first, second, number = np.array([[4, 6], [4, 6], [0, 0], [0, 0]]), np.array([1.5, 0, 0, 0]), np.array([1.5, 1, 1, 0])
    wanted = np.zeros((4, SHAPE_WIDTH))
    wanted[:, :2], wanted[:, 4], wanted[:, -1] = first, second, number
    spread = wanted.std(0)
    wanted = (wanted - wanted.mean(0)) / np.where(spread > 0, spread, 1)
    np.testing.assert_allclose(constants().shapes.numpy(), wanted, rtol=1e-6, atol=1e-6)


def test_neighbours_are_the_other_groups_that_feed_or_are_fed():
    assert constants().adjacency.tolist() == [[0, 1, 1, 0, 0, 0], [1, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]]


def test_the_embedding_is_type_shapes_and_adjacency_beside_each_other():
    torch.manual_seed(0)
    of = four_groups()
    encoder = ColocationGroups(KINDS, 6)
    known = encoder.constants(of, units(of.graph, "ops"))
    rows = encoder(known)
    assert rows.shape == (4, encoder.width) == (4, KIND_WIDTH + SHAPE_WIDTH + 6)
    kind, shapes, adjacency = rows.split([KIND_WIDTH, SHAPE_WIDTH, 6], dim=1)
    torch.testing.assert_close(kind[0], (encoder.kind.weight[0] + encoder.kind.weight[1]) / 2)
    torch.testing.assert_close(kind[1], encoder.kind.weight[1])
    assert shapes.equal(known.shapes) and adjacency.equal(known.adjacency)


def test_more_groups_than_columns_are_refused():
    of = chains(1, 7, 2)
    with pytest.raises(ValueError, match="chains-1x7: 7 colocation groups, but this policy has learned 6"):
        ColocationGroups(KINDS, 6).constants(of, units(of.graph, "ops"))
