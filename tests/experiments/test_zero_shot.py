"""The zero-shot experiment: what is counted as an evaluation, ratios, intervals, and which problems belong to a part."""

from __future__ import annotations

import numpy as np
import pytest
from support.graphs import chains

from experiments.zero_shot import table
from experiments.zero_shot.run import Recorded, problems, untrained
from gnnplace.corpus import manifest
from gnnplace.placement import Placement
from gnnplace.portfolio import searches


def placement(posed, *devices):
    return Placement(np.repeat(np.array(devices, np.int32), posed.num_ops // len(devices)))


def test_every_evaluation_counts_and_the_best_so_far_stays():
    posed = chains(2, 3, 2)
    recorded = Recorded()
    recorded(posed, [placement(posed, 0), placement(posed, 0, 1)])
    recorded(posed, [placement(posed, 0)], limit_ns=3000)
    assert recorded.best_ns == [6000, 3000, 3000]
    assert recorded.at([1, 2, 64]) == {"1": 6000, "2": 3000, "64": 3000}
    assert Recorded([0, 0]).at([2]) == {"2": None}


def test_parts_have_no_problem_in_common_and_test_lineages_alone_are_tested():
    split = {entry.name: (entry.split, entry.ops) for entry in manifest.entries()}
    parts = {part: problems(part) for part in ("validation", "test", "large", "drawn")}
    assert all(len(found) > 10 for found in parts.values())
    assert {split[graph][0] for part in ("test", "drawn") for graph, _ in parts[part]} == {"test"}
    assert not {split[graph][0] for graph, _ in parts["validation"]} & {"test"}
    assert min(split[graph][1] for graph, _ in parts["large"]) >= 10_000
    assert len({cluster for _, cluster in parts["drawn"]}) == len(parts["drawn"])


def test_an_untrained_network_has_the_range_of_the_trained_one_and_other_weights():
    trained = searches.shipped()
    other = untrained(trained)
    assert np.array_equal(other.low, trained.low) and other.layers[0][0].shape == trained.layers[0][0].shape
    assert not np.allclose(other.layers[0][0], trained.layers[0][0])


def test_ratios_are_means_over_seeds_and_problems_without_room_are_left_out():
    def cell(*times):
        return {"bound_ns": 50, "heuristic_ns": 100, "start": {"24": 100, "64": 100}, "path": {"24": 100, "64": times[0], "seconds": 1}}

    cells = {"dlrm/1/0": cell(80), "dlrm/1/1": cell(125), "gat/2/0": cell(None), "gat/3/0": cell(50) | {"bound_ns": 99}}
    rows = table.ratios({"cells": cells, "settings": {"methods": ["path"]}})
    assert [(family, lineage) for family, lineage, _ in rows] == [("dlrm", "recommender"), ("gat", "graph")]
    assert [values["path"]["64"] for *_, values in rows] == pytest.approx([1.0, table.INFEASIBLE])


def test_an_interval_holds_the_mean_and_families_stay_together():
    logs = np.log(np.array([0.9] * 20 + [1.1]))
    alone, together = table.interval([str(n) for n in range(21)], logs), table.interval(["a"] * 20 + ["b"], logs)
    assert alone[0] < np.exp(logs.mean()) < alone[1] and together[1] - together[0] > alone[1] - alone[0]
