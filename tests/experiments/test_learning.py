"""What the improver learns from: families of features that a network does not see, settings that differ, and the table."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from experiments.zero_shot import learning
from gnnplace.moves.columns import DRAWN, NAMES
from gnnplace.policies.improver.scorer import FEATURES, MoveScorer


def test_families_hold_features_and_no_feature_twice():
    assert all(learning.FAMILIES.values())
    named = [name for names in learning.FAMILIES.values() for name in names]
    assert len(named) == len(set(named)) and set(named) <= {*NAMES, *DRAWN}


@pytest.mark.parametrize("family", learning.FAMILIES)
def test_a_family_is_not_seen_and_the_others_are(family):
    torch.manual_seed(0)
    scorer, rows = MoveScorer(width=32, hidden=1), torch.rand(40, FEATURES)
    columns = [(*NAMES, *DRAWN).index(name) for name in learning.FAMILIES[family]]
    learning._blind(scorer, learning.FAMILIES[family])
    scorer.fit_range(rows)
    unseen, seen = rows.clone(), rows.clone()
    unseen[:, columns] = rows[:, columns].flip(0)
    others = [column for column in range(FEATURES) if column not in columns]
    seen[:, others] = rows[:, others].flip(0)
    assert torch.equal(scorer(rows), scorer(unseen)) and not torch.allclose(scorer(rows), scorer(seen))
    assert np.array_equal(scorer.ranking()(rows.numpy()), scorer.ranking()(unseen.numpy()))


def test_each_row_changes_the_tuned_settings():
    rows = [learning.configured(changes, 0) for changes in ((), *learning.SETTINGS.values())]
    assert all(first != second for i, first in enumerate(rows) for second in rows[:i])


def test_a_study_has_a_row_for_each_number_setting_and_family():
    assert len(learning.jobs_of("training_graphs", 0)) == len(learning.NUMBERS) + 1
    assert len(learning.jobs_of("ablation", 0)) == 1 + len(learning.SETTINGS) + len(learning.FAMILIES)


def test_the_table_has_means_over_problems_and_seeds(monkeypatch):
    monkeypatch.setattr(learning.results, "load", lambda path: {"cells": {"dlrm/1": {"heuristic_ns": 100}, "gat/1": {"heuristic_ns": 200}}})

    def cell(dlrm, gat):
        return {"problems": 6, "training_s": 3.0, "reached": {"alone": {"dlrm/1": dlrm, "gat/1": gat}}}

    *_, row = learning.table({"cells": {"6 problems/0": cell(50, 200), "6 problems/1": cell(100, 400)}}).splitlines()
    name, problems, way, mean, spread, seconds = (each.strip() for each in row.strip("|").split("|"))
    assert (name, problems, way, spread, seconds) == ("6 problems", "6", "alone", "0.707 1.414", "3") and mean.startswith("1.000 [")
