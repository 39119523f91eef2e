"""The paper's embeddings by hand: shapes, neighbours in breadth-first order, group counts and adjacency."""

import math

import numpy as np
import pytest
import torch
from support.graphs import equal_gpus

from gnnplace.costs.roofline import problem
from gnnplace.graph import CONTROL, ComputationGraph, Op, Output
from gnnplace.policies.encoders.groups import MeanGroups, group_adjacency
from gnnplace.policies.encoders.kinds import Vocabulary, vocabulary
from gnnplace.policies.encoders.paper import PaperGroups, PaperOps, breadth_first_index, neighbours, output_shapes
from gnnplace.policies.hierarchical.grouper import Grouper
from gnnplace.units.units import units

P = -1.0


def graph(ops, edges=()):
    return ComputationGraph.from_ops("g", ops, edges)


def named(*names, outputs=1):
    return [Op(name, "Op", outputs * (Output(4),)) for name in names]


def test_vocabulary_is_the_most_frequent_kinds_of_all_graphs():
    first = graph([Op("a", "Mul"), Op("b", "Add"), Op("c", "Zero"), Op("d", "Add")])
    second = graph([Op("a", "Mul"), Op("b", "Mul")])
    assert vocabulary([first, second]).words == ("Mul", "Add", "Zero")
    assert vocabulary([first], size=2).words == ("Add", "Mul")


def test_output_shapes_are_filled_output_by_output():
    outputs = (Output(4, (2, 3)), Output(4, ()), Output(4, (5, 6, 7, 8, 9)), Output(4))
    row = output_shapes(graph([Op("a", "Op", outputs)]))[0]
    assert row.tolist() == [2, 3, P, P, P, P, P, P, 5, 6, 7, 8] + 12 * [P] + [4]


def test_further_outputs_are_dropped_but_counted():
    row = output_shapes(graph([Op("a", "Op", 8 * (Output(4, (2,)),))]))[0]
    assert row.tolist() == 6 * [2, P, P, P] + [8]


def test_an_op_without_outputs_is_all_padding():
    assert output_shapes(graph([Op("a", "NoOp")]))[0].tolist() == 24 * [P] + [0]


def test_breadth_first_from_the_ops_without_inputs():
    # 0 -> 2 -> 3, 1 -> 3, 1 -> 4 by control: sources 0 and 1 come first, then 2, then what 1 feeds, control edges first
    of = graph(named("a", "b", "c", "d", "e"), [(0, 0, 2), (2, 0, 3), (1, 0, 3), (1, CONTROL, 4)])
    assert breadth_first_index(of).tolist() == [0, 1, 2, 4, 3]
    of = graph(named("a", "b", "c", "d"), [(3, 0, 0), (3, 0, 2), (2, 0, 1)])
    assert breadth_first_index(of).tolist() == [1, 3, 2, 0]


def test_neighbours_are_distinct_and_lowest_first():
    of = graph(named("a", "b", "c", outputs=2), [(1, 0, 2), (1, 1, 2), (0, 0, 2)])
    assert neighbours(of)[2].tolist() == [0, 1, P, P, P, P] + 6 * [P]
    assert neighbours(of)[0].tolist() == 6 * [P] + [2, P, P, P, P, P]


def test_at_most_six_neighbours_a_side():
    of = graph(named(*"abcdefghi"), [(i, 0, 8) for i in range(8)])
    assert neighbours(of)[8].tolist() == [0, 1, 2, 3, 4, 5] + 6 * [P]


def colocated():
    """a and c stand together; kinds Mul, Add, Add, Rare; a -> b -> d and c -> d."""
    ops = [
        Op("a", "Mul", (Output(4, (2, 3)),), colocation="w"),
        Op("b", "Add", (Output(4, (10,)),)),
        Op("c", "Add", (Output(4, (5,)),), colocation="w"),
        Op("d", "Rare", ()),
    ]
    of = problem(graph(ops, [(0, 0, 1), (1, 0, 3), (2, 0, 3)]), equal_gpus(2))
    return of, units(of.graph, "ops")


def test_op_embeddings_have_57_columns_standardised_over_ops():
    of, made = colocated()
    encoder = PaperOps(vocabulary([of.graph]))
    constants = encoder.constants(of, made)
    assert encoder(constants).shape == (made.num_units, 57) and encoder.width == 57
    first_dim = np.array([2, 10, 5, -1.0])
    expected = (first_dim - first_dim.mean()) / first_dim.std()
    by_unit = dict(zip(made.unit[[0, 1, 3]].tolist(), expected[[0, 1, 3]].tolist(), strict=True))  # a is the first of its unit
    assert constants.numbers[:, 0].tolist() == pytest.approx([by_unit[unit] for unit in range(made.num_units)], abs=1e-6)
    assert (constants.numbers[:, 4:24] == 0).all()  # constant columns


def test_kinds_outside_the_vocabulary_share_the_last_row():
    of, made = colocated()
    kind = PaperOps(Vocabulary(("Mul",))).constants(of, made).kind
    assert kind[made.unit[0]] == 0 and kind[made.unit[1]] == kind[made.unit[3]] == 1


def test_a_graph_never_seen_can_be_encoded():
    of, made = colocated()
    encoder = PaperOps(Vocabulary(("Conv2D", "MatMul")))
    assert torch.isfinite(encoder(encoder.constants(of, made))).all()


def test_group_embeddings_count_all_members_and_leave_out_padding():
    of, made = colocated()
    encoder = PaperGroups(Vocabulary(("Add", "Mul")), groups=3)
    constants = encoder.constants(of, made)
    pair, b, d = made.unit[[0, 1, 3]]
    assert constants.sums[pair, :3].tolist() == [1, 1, 0]  # an Add, a Mul, nothing rare
    assert constants.sums[d, :3].tolist() == [0, 0, 1]
    assert constants.sums[pair, 3:5].tolist() == [7, 3] and constants.sums[pair, 27] == 2  # dimensions (2, 3) and (5,); 2 outputs
    assert constants.sums[d, 3:].tolist() == 25 * [0]
    grouping = torch.zeros(1, 3, dtype=torch.long)
    grouping[0, b] = 2
    embedded = encoder(constants, grouping, None)
    assert embedded.shape == (1, 3, encoder.width) == (1, 3, 3 + 25 + 3)
    assert (embedded[0, 1] == 0).all()  # an empty group
    counts = torch.tensor([1.0, 0.0, 1.0])  # of Add in the three groups
    torch.testing.assert_close(embedded[0, :, 0], counts / counts.square().mean().sqrt())
    assert embedded[0, :, 28:].tolist() == [[1, 0, 1], [0, 0, 0], [1, 0, 0]]  # pair -> b -> d, pair -> d


def test_adjacency_rows_are_sources():
    edges = torch.tensor([[0, 1], [1, 2]])
    grouping = torch.tensor([[0, 1, 1], [0, 0, 0]])
    adjacency = group_adjacency(grouping, edges, 2)
    assert adjacency.tolist() == [[[0, 1], [0, 1]], [[1, 0], [0, 0]]]


def test_mean_groups_by_hand():
    of, made = colocated()
    encoder = MeanGroups(1, groups=2)
    members = torch.tensor([[1.0], [3.0], [8.0]])
    embedded = encoder(encoder.constants(of, made), torch.tensor([[0, 0, 0]]), members)
    assert embedded[0, 0].tolist() == pytest.approx([4, math.log(3), 1, 0]) and embedded[0, 1].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("activation", ["relu", "linear"])
def test_grouper_starts_nearly_uniform_on_sizes_as_uneven_as_real_ones(activation):
    """Unscaled, this entropy is 0.03 of log G."""
    draw = np.random.default_rng(0)
    sizes = (10 ** draw.uniform(0, 5, (3000, 4))).astype(int)
    ops = [Op(f"o{i}", f"K{i % 40}", (Output(4, tuple(size.tolist())),) * (1 + i % 3)) for i, size in enumerate(sizes)]
    edges = [(int(src), 0, dst) for dst in range(1, 3000) for src in draw.integers(max(0, dst - 20), dst, 2)]
    of = problem(graph(ops, edges), equal_gpus(2))
    torch.manual_seed(0)
    encoder = PaperOps(vocabulary([of.graph]))
    embedded = encoder(encoder.constants(of, units(of.graph, "ops")))
    log = Grouper(encoder.width, 256, activation=activation)(embedded).log_softmax(-1)
    assert float(-(log.exp() * log).sum(-1).mean().detach()) > 0.9 * math.log(256)
