"""The comparison of rankings: what a GNN reads of a placement, and that each model learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.slow import slow

from experiments.rankings import models
from experiments.rankings.pools import captured, collected


@pytest.fixture(scope="module")
def pools():
    return collected(("mixer", "autoencoder"), 24, 1500, 0)


def test_a_pool_has_the_graph_of_its_placement_and_the_ops_of_its_moves(pools):
    for known in pools:
        ops, moves = len(known.node), len(known.rows)
        assert known.device.shape == (ops,) and known.edges.max() < ops and known.edge.shape == (known.edges.shape[1], 2)
        assert set(known.moved[0]) == set(range(moves)) and known.moved[1].max() < ops and len(known.target) == known.moved.shape[1]
        assert known.gain.max() > 0 and np.isfinite(known.node).all() and np.isfinite(known.edge).all()
        moved = known.device[known.moved[1]] != known.target
        assert moved.all()  # a move names what it changes


def test_what_is_captured_is_a_share_of_the_best_gain(pools):
    known = pools[0]
    assert captured(known.gain, known) == 1.0 and captured(-known.gain, known) <= captured(known.gain, known)
    assert captured(torch.from_numpy(known.gain), known, first=1) == 1.0


@pytest.mark.parametrize("kind", ["logistic", slow("trees"), slow("perceptron"), slow("gnn alone"), slow("gnn, device nodes")])
def test_each_model_learns_the_pools_that_it_sees(kind, pools, monkeypatch):
    monkeypatch.setattr(models, "EPOCHS", 12)
    score, chance = models.fitted(kind, pools, 0), models.fitted("random", pools, 0)
    share, by_chance = (np.mean([captured(each(known), known) for known in pools]) for each in (score, chance))
    assert share > by_chance + 0.1, (share, by_chance)
