"""What experiments override are knobs of today, so that a renamed one is found here and not after hours."""

import argparse
from functools import cache

import pytest

from experiments.ablation.run import STUDIES
from experiments.encoders import single, transfer
from experiments.fidelity.placements import POLICY
from experiments.first_transfer.run import SETTINGS, VARIANTS
from experiments.gpu.throughput import CONFIGURATIONS
from experiments.table1.run import LEARNED
from experiments.training import config_of
from experiments.workers.run import common
from gnnplace.config import files

configured = cache(config_of)


@pytest.mark.parametrize(("study", "variant"), [(study, variant) for study in STUDIES for variant in study.variants])
def test_a_variant_of_the_ablation_changes_something_unless_it_is_the_first(study, variant):
    whole, changed = (configured(study.policy, study.settings, overrides, study.encoder) for overrides in ((), study.variants[variant]))
    assert (changed == whole) == (variant == next(iter(study.variants)))


@pytest.mark.parametrize("column", LEARNED)
def test_the_columns_of_table_1_are_settings(column):
    policy, settings, encoder, overrides = LEARNED[column]
    assert config_of(policy, settings, overrides, encoder).policy.kind == policy


def test_the_four_policies_of_the_encoders_differ_in_two_switches_alone():
    documents = [files.to_document(transfer.config(variant, ())) for variant in transfer.VARIANTS]
    policies = [document.pop("policy") for document in documents]
    assert all(document == documents[0] for document in documents)
    assert [(policy.pop("features"), policy.pop("neighbours")) for policy in policies] == [
        tuple(variant.split(", ")) for variant in transfer.VARIANTS
    ]
    assert all(policy == policies[0] for policy in policies) and policies[0]["devices"] == "observed"


def test_one_policy_a_graph_imitates_no_heuristic():
    chosen = {encoder: single.config(encoder, ()) for encoder in single.ENCODERS}
    assert all(each.training.warm_start.updates == 0 and each.policy.encodes_with == encoder for encoder, each in chosen.items())


def test_the_others_are_read():
    assert all(config_of("unit-placer", "tuned", (*SETTINGS, *variant)) for variant in VARIANTS.values())
    assert config_of("unit-placer", "tuned", POLICY).training.updates == 30
    assert [config_of(*names, ()).policy.kind for names in CONFIGURATIONS.values()] == ["hierarchical", "unit-placer"]
    words = common(argparse.Namespace(graph="nmt-4", cluster="k40-4", updates=7))
    assert files.read_settings(overrides=words, encoder="gnn").problems == (("nmt-4", "k40-4"),)
