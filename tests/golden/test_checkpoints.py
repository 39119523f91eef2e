"""Checkpoints that an earlier commit trained place as they did there, to the nanosecond: `expected.json` was written by that commit.

Two changes moved it. The unit placer on eight equal GPUs hung on the rounding of equal logits, of which the tape now takes the first.
When variables and views came to take a nanosecond (docs/log.md), features and steps moved, and it was written anew.
"""

import json
from functools import cache
from pathlib import Path

import pytest
from support.slow import slow

from gnnplace.corpus import clusters, manifest
from gnnplace.costs import roofline
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run import zero_shot

HERE = Path(__file__).parent / "checkpoints"
EXPECTED = json.loads((HERE / "expected.json").read_text())


@cache
def problem(graph, cluster):
    return roofline.problem(manifest.graph(graph), clusters.cluster(cluster))


def planner(name, samples):
    return zero_shot.planner(str(HERE / f"{name}.safetensors"), 0, samples)


CASES = [case if case[3] == 0 and case[2] == "k40-2" else slow(*case) for case in EXPECTED["step_time_ns"]]  # greedy, or of samples


@pytest.mark.parametrize(("name", "graph", "cluster", "samples", "step_time_ns"), CASES)
def test_an_old_checkpoint_places_as_it_did(name, graph, cluster, samples, step_time_ns):
    of = problem(graph, cluster)
    (result,) = simulate(of, [planner(name, samples)(of)])
    assert result.feasible_ns == step_time_ns


@pytest.mark.parametrize(("name", "graph", "cluster", "reason"), EXPECTED["refused"])
def test_what_an_old_checkpoint_cannot_place_is_refused_in_one_line(name, graph, cluster, reason):
    with pytest.raises(ValueError) as caught:
        planner(name, 0)(problem(graph, cluster))
    assert str(caught.value) == reason


def test_a_policy_that_no_knob_means_any_more_is_refused_in_one_line():
    """It passed messages over ops and read a column for each group."""
    with pytest.raises(ValueError, match=r"hierarchical-gnn.safetensors: policy.encoder: 'gnn' of an older version has weights that no"):
        planner("hierarchical-gnn", 0)
