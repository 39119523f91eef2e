"""Splits are by lineage: no graph is proved on that has a sibling among those learned on."""

from types import SimpleNamespace

import pytest

from gnnplace.corpus import manifest, splits


def member(name, lineage, split="train"):
    return SimpleNamespace(name=name, lineage=lineage, split=split)


def test_a_lineage_in_two_parts_is_refused():
    splits.check([member("a", "x"), member("b", "x"), member("c", "y", "test")])
    with pytest.raises(ValueError, match=r"'b': split is 'test', but 'a' of the same lineage 'x' is in 'train'"):
        splits.check([member("a", "x"), member("c", "y", "test"), member("b", "x", "test")])


def test_a_lineage_without_a_part_names_those_that_have_one():
    assert splits.fixed("recommender") == "test"
    with pytest.raises(ValueError, match=r"'recommenders' is in no part of the fixed split; known lineages: recurrent"):
        splits.fixed("recommenders")


def test_every_part_of_the_fixed_split_has_lineages():
    assert {splits.fixed(lineage) for lineage in splits.FIXED} == {"train", "validation", "test"}


def test_the_corpus_is_split_by_the_fixed_split():
    entries = manifest.entries()
    splits.check(entries)
    assert all(entry.split == splits.fixed(entry.lineage) for entry in entries)
