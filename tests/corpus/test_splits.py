"""Splits are by lineage: no graph is proved on that has a sibling among those learned on."""

from types import SimpleNamespace

import pytest

from gnnplace.corpus import manifest, splits


def member(name, lineage, split="train"):
    return SimpleNamespace(name=name, lineage=lineage, split=split)


def test_each_lineage_is_held_out_once_and_never_beside_a_sibling():
    folds = splits.leave_one_lineage_out([member("b", "y"), member("c", "x"), member("a", "y")])
    assert folds == {"x": (("a", "b"), ("c",)), "y": (("c",), ("a", "b"))}
    assert list(folds) == ["x", "y"]


def test_a_lineage_in_two_parts_is_refused():
    splits.check([member("a", "x"), member("b", "x"), member("c", "y", "test")])
    with pytest.raises(ValueError, match=r"'b': split 'test' is not 'train', that of 'a', which is of the same lineage 'x'"):
        splits.check([member("a", "x"), member("c", "y", "test"), member("b", "x", "test")])


def test_a_lineage_without_a_part_names_those_that_have_one():
    assert splits.fixed("recommender") == "test"
    with pytest.raises(ValueError, match=r"'recommenders' has no part of the fixed split; those that have one are recurrent"):
        splits.fixed("recommenders")


def test_every_part_of_the_fixed_split_has_lineages():
    assert {splits.fixed(lineage) for lineage in splits.FIXED} == {"train", "validation", "test"}


def test_the_corpus_is_split_by_the_fixed_split():
    entries = manifest.entries()
    splits.check(entries)
    assert all(entry.split == splits.fixed(entry.lineage) for entry in entries)
    folds = splits.leave_one_lineage_out(entries)
    assert all(sorted((*fold.train, *fold.held_out)) == list(manifest.names()) for fold in folds.values())
