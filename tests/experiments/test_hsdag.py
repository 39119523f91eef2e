"""HSDAG's experiment: equal evaluations, and tables of made-up cells."""

from itertools import product

import pytest

from experiments.hsdag import run
from experiments.training import config_of


@pytest.mark.parametrize("column", run.LEARNED)
def test_every_policy_has_as_many_evaluations(column):
    assert run.EVALUATIONS % run.evaluations_each(column) == 0
    settings, overrides = run.LEARNED[column]
    assert config_of("hsdag", settings, overrides).training.warm_start.updates == 0


def test_the_published_settings_have_the_papers_number_of_updates():
    assert run.EVALUATIONS // run.evaluations_each("hsdag-published") == config_of("hsdag", "published", ()).training.updates == 100


def test_the_table_shows_medians_and_ranges_and_the_paper_beside():
    heuristics = {"gpu": 2_000_000, "heft": 1_900_000, "scotch": None}
    cell = {"cpu_ns": 12_800_000, "gpu_ns": 2_000_000, "bound_ns": 10**6, "heuristics": heuristics}
    found = {f"{graph}/fixed": cell for graph in run.GRAPHS}
    for graph, seed in product(run.GRAPHS, range(3)):
        found[f"{graph}/hsdag-published/{seed}"] = {"best_ns": (3 + seed) * 10**6, "greedy_ns": None}
    row = dict(zip(run.HEADER, run.rows(found)[0], strict=True))
    assert (row["best heuristic"], row["HSDAG, published"], row["HSDAG, tuned"]) == ("1.900 (heft)", "4.000 [3.000 - 5.000]", "-")
    theirs, ours = run.paper_rows(found)[:2]
    assert (theirs[-1], ours[-1], theirs[7]) == ("0.875", "2.000", "12.8") and run.paper_rows(found)[4][7] == "out of memory"
