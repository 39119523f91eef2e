"""Costs with the paper's neighbours, and kinds that all frameworks share."""

import torch
from support.graphs import chains, equal_gpus

from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op
from gnnplace.policies.encoders.columns import CostOps, apart
from gnnplace.policies.encoders.kinds import CANONICAL
from gnnplace.policies.encoders.paper import PaperOps
from gnnplace.policies.features import NODE_FEATURES, features
from gnnplace.units.units import units


def test_costs_stand_beside_twelve_standardised_indices():
    of = chains(2, 3, 2)
    made, encoder = units(of.graph, "ops"), CostOps()
    embedded = encoder(encoder.constants(of, made))
    assert embedded.shape == (6, NODE_FEATURES + 12) and encoder.width == NODE_FEATURES + 12
    torch.testing.assert_close(embedded[:, :NODE_FEATURES], apart(features(of, made).node))
    torch.testing.assert_close(embedded[:, NODE_FEATURES:].mean(0), torch.zeros(12), atol=1e-6, rtol=0)


def test_costs_are_clamped_to_their_range_in_training():
    seen, other = chains(1, 3, 2), chains(3, 5, 2)
    encoder = CostOps()
    constants = [encoder.constants(of, units(of.graph, "ops")) for of in (seen, other)]
    encoder.widen_ranges(constants[:1])
    clamped = constants[1].costs.clamp(constants[0].costs.amin(0), constants[0].costs.amax(0))
    torch.testing.assert_close(encoder(constants[1])[:, :NODE_FEATURES], apart(clamped))


def test_rows_are_kept_apart():
    rows = torch.tensor([[101.0, 5.0], [99.0, 5.0]])
    torch.testing.assert_close(apart(rows), torch.tensor([[2**0.5, 0.0], [-(2**0.5), 0.0]]))
    assert (apart(rows[:1]) == 0).all()


def kinds(*canonical):
    ops = [Op(f"o{i}", f"made by one framework {i}", canonical_kind=kind) for i, kind in enumerate(canonical)]
    return problem(ComputationGraph.from_ops("g", ops, []), equal_gpus(2))


def test_a_canonical_kind_that_training_never_saw_counts_as_nothing():
    torch.manual_seed(0)
    encoder = PaperOps(CANONICAL)
    trained, other = kinds("matmul", "conv"), kinds("conv", "softmax")
    encoder.widen_ranges([encoder.constants(trained, units(trained.graph, "ops"))])
    known, unknown = encoder(encoder.constants(other, units(other.graph, "ops")))[:, :20]
    torch.testing.assert_close(known, encoder.kind.weight[CANONICAL.words.index("conv")])
    assert (unknown == 0).all()
