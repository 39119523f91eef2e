"""Encoders: ratios seed by seed, families that weigh the same, and tables of made-up cells."""

from math import exp, log

import pytest
from support.graphs import chains

from experiments.encoders import single_table, transfer, transfer_table
from experiments.encoders.intervals import Interval, compared, geometric
from experiments.encoders.single import ENCODERS, GRAPHS, RANDOM
from experiments.encoders.transfer import VARIANTS
from gnnplace.policies.unit_placer.policy import UnitPlacer, UnitPlacerConfig


def test_problems_are_compared_seed_by_seed_where_both_fit():
    logs = compared({"a": [2, 4, None], "b": [None, 8, 8]}, {"a": [1, None, 1], "b": [4]})
    assert {name: [exp(each) for each in values] for name, values in logs.items()} == {
        "a": [pytest.approx(2)],
        "b": [pytest.approx(2), pytest.approx(2)],
    }


def test_a_policy_places_what_is_held_out_greedily_and_by_samples():
    problems = [chains(2, 3, 2), chains(3, 2, 3)]
    found = transfer.placed(UnitPlacer(UnitPlacerConfig(units="ops", width=8, rounds=1, hidden=8)), problems, 4, 0)
    assert len(found) == 2 and all(set(times) == {"greedy", "best sample"} for times in found.values())
    assert all(time > 0 for times in found.values() for time in times.values())


def test_a_point_of_a_curve_is_the_mean_of_a_block_of_updates():
    assert transfer.blocks([None] * 10 + [2.0, 8.0] * 5 + [3.0, None]) == [None, pytest.approx(4), pytest.approx(3)]


def test_every_family_weighs_the_same_and_few_have_no_interval():
    logs, family_of = {"a": [log(2)] * 9, "b": [log(2)], "c": [log(8)], "d": []}, {"a": "one", "b": "one", "c": "two", "d": "three"}
    assert geometric(logs, family_of) == Interval(pytest.approx(4))
    assert geometric({"d": []}, family_of) is None


def test_the_interval_is_of_families_drawn_again():
    logs = {str(number): [log(1 + number / 10)] for number in range(12)}
    families = {name: name for name in logs}
    found = geometric(logs, families)
    assert found.low < found.mean < found.high and found == geometric(logs, families)
    assert str(Interval(1.234, 1.1, 1.4)) == "1.23 [1.10, 1.40]" and str(Interval(1.234)) == "1.23"


def test_the_table_of_one_policy_a_graph_has_the_ratios_that_are_asked_for():
    cell = {"best_sample_ns": 9e6, "greedy_ns": 9.9e6, "best_greedy_ns": 9.45e6, "fullest": 0.5, "seconds": 120.0}
    found = {
        f"{graph}/controls": {"heuristics": {"gpu": 30e6, "expert": 20e6, "metis": 10e6, "scotch": None}, "bound_ns": 5e6}
        for graph in GRAPHS
    }
    found |= {f"{graph}/{encoder}/{seed}": cell for graph in GRAPHS for encoder in ENCODERS for seed in range(2)}
    found |= {f"{graph}/{random}/{seed}": {"best_ns": 18e6} for graph in GRAPHS for random in RANDOM for seed in range(2)}
    row = next(line for line in single_table.table(found).splitlines() if line.startswith(f"| {GRAPHS[0]} | gnn "))
    shown = [text.split(" ")[0] for text in row.strip("| ").split(" | ")[4:]]
    assert shown == ["1.100", "1.050", "0.900", "0.450", "0.300", "0.500", "50", "2.0"]


def test_the_table_of_one_policy_for_many_graphs_compares_pairs():
    labels = {"unet.k40-2": 100, "wavenet-4x36.v100-8": 10, "gcn.k40-2": 1000}
    others = {
        name: {"one_device_ns": 2 * time, "heuristic_ns": time, "random_ns": [4 * time] * 2, "bound_ns": time // 2}
        for name, time in labels.items()
    }
    found = {f"others/{name}": cell for name, cell in others.items()}
    for variant in VARIANTS:
        times = {name: {"greedy": time if variant == "costs, messages" else 2 * time, "best sample": None} for name, time in labels.items()}
        found |= {f"{variant}/{seed}": {"trained": times, "untrained": times} for seed in range(2)}
    lines = transfer_table.table(found).splitlines()
    assert (
        "| costs, messages: trained, greedy | 1.00 [1.00, 1.00] | 0.50 [0.50, 0.50] | 2.00 [2.00, 2.00] | 0 of 6 | 0 of 6 | 0 of 6 |"
        in lines
    )
    assert "| costs, messages: trained, best sample | - | - | - | 0 of 6 | 0 of 6 | 6 of 6 |" in lines
    assert (
        "| paper, indices: trained, greedy | 2.00 [2.00, 2.00] | 1.00 [1.00, 1.00] | 4.00 [4.00, 4.00] | 6 of 6 | 6 of 6 | 0 of 6 |"
        in lines
    )
    assert "| encoder gnn / encoder paper, greedy | 0.50 [0.50, 0.50] |" in lines
    assert "| features: costs / paper, greedy | 0.71 [0.71, 0.71] |" in lines


def test_the_table_of_an_unfinished_run_has_no_pairs():
    others = {"others/gcn.k40-2": {"one_device_ns": 2, "heuristic_ns": 1, "random_ns": [4], "bound_ns": 1}}
    assert "encoder gnn / encoder paper" not in transfer_table.table(others)
