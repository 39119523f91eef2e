"""The learned ranking without torch: equal to the network, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from gnnplace.moves.ranking import PREFIX, read_ranking
from gnnplace.policies.improver.scorer import FEATURES, MoveScorer

TREE = {"gnnplace": {"description": {"range": {"ops": [10, 900], "devices": [2, 8]}}}}
HEADER = {"gnnplace": json.dumps({"format": "gnnplace.checkpoint", "version": 3, "tree": TREE})}


def rows(count=200):
    return (np.random.default_rng(0).standard_cauchy((count, FEATURES)) * np.logspace(-3, 3, FEATURES)).astype(np.float32)


def written(path, scorer, header=HEADER, prefix=PREFIX):
    save_file({prefix + name: value.contiguous() for name, value in scorer.state_dict().items()}, path, header)
    return path


@pytest.mark.parametrize("hidden", [0, 1, 2])
def test_it_scores_as_the_network_does(tmp_path, hidden):
    torch.manual_seed(0)
    scorer = MoveScorer(16, hidden)
    scorer.fit_range(torch.from_numpy(rows()))
    found = read_ranking(written(tmp_path / "c.safetensors", scorer))(rows())
    with torch.no_grad():
        expected = scorer(torch.from_numpy(rows())).numpy()
    assert found == pytest.approx(expected, abs=1e-4) and np.unique(found.round(6)).size > 100
    assert np.array_equal(found, scorer.ranking()(rows())) and np.array_equal(found, found.round(6))


def test_what_is_far_outside_of_training_counts_as_its_edge():
    torch.manual_seed(0)
    scorer = MoveScorer(16, 2)
    scorer.fit_range(torch.from_numpy(rows()))
    far = torch.full((1, FEATURES), 1e30)
    with torch.no_grad():
        assert torch.equal(scorer(far), scorer(torch.expm1(scorer.high.clamp(min=0))[None] * 1e20 + 1e20))


def test_a_feature_that_never_varied_does_not_divide_by_zero():
    scorer = MoveScorer(4, 1)
    scorer.fit_range(torch.ones(50, FEATURES))
    assert scorer(torch.ones(3, FEATURES)).isfinite().all() and scorer.knows_range


def test_other_files_are_refused_in_one_line(tmp_path):
    scorer = MoveScorer(4, 1)
    (tmp_path / "text").write_text("nothing")
    narrow = {PREFIX + "low": torch.zeros(3)}
    save_file(narrow, tmp_path / "narrow", HEADER)
    for path, rule in (
        (tmp_path / "text", "not a checkpoint"),
        (written(tmp_path / "plain", scorer, {}), "is no checkpoint of the policy improver"),
        (written(tmp_path / "other", scorer, HEADER, "state_dict/policy."), "is no checkpoint of the policy improver"),
        (tmp_path / "narrow", f"by 3 features, and there are {FEATURES}"),
    ):
        with pytest.raises(ValueError, match=rule) as refused:
            read_ranking(path)
        assert str(path) in str(refused.value) and "\n" not in str(refused.value)


def test_it_says_what_lies_outside_of_its_training(tmp_path):
    trained_on = read_ranking(written(tmp_path / "c", MoveScorer(4, 1))).trained_on
    assert trained_on.outside(10, 8) is None
    assert trained_on.outside(1000, 2) == "1,000 ops, and it was trained on 10 to 900"
    assert trained_on.outside(1000, 9).endswith("; 9 devices, and it was trained on 2 to 8")
