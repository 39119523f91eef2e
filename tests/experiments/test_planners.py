"""The planners' experiment: what is counted, equal evaluations, and tables and pictures of made-up cells."""

import argparse
from functools import cache
from itertools import product

import pytest

from experiments.planners import picture, run, table
from experiments.planners.columns import ABLATIONS, LEARNED, MAIN, Learned
from experiments.planners.watched import Watched, curve
from experiments.problems import problem_of
from gnnplace.baselines.single import on_each
from gnnplace.training.run.evaluations import of_an_episode

PROBLEMS = (("resnet-50", "k40-2"), ("inception-v3-b1", "k40-2"), ("inception-v3-b32", "k40-2"), ("nmt-2", "mixed-4"))

configured = cache(Learned.config)


def made_up(**columns):
    """Cells of three seeds: of each planner the first's time in ms on every problem, a quarter more with each seed."""
    found = {f"{graph}/{cluster}/heuristics": {"heuristics": {"gpu": 10**7, "heft": 8 * 10**6, "metis": None}, "bound_ns": 4 * 10**6}
             for graph, cluster in PROBLEMS}  # fmt: skip
    for (planner, time), problem, seed in product(columns.items(), PROBLEMS, range(3)):
        best = None if time is None else int(time * 10**6 * (1 + seed / 4))
        cell = {"evaluations": 100, "infeasible": 50, "seconds": 7.0, "best_ns": best, "near_evaluations": 40 + seed, "near_seconds": 2.0,
                "given": {"evaluations": 0, "seconds": 0.0},
                "curve": {"evaluations": [50, 100], "best_ns": [None, best], "mean_ns": [None, best]}}  # fmt: skip
        found["/".join((*problem, planner.replace("_", "-"), "100", str(seed)))] = cell
    return found


@pytest.mark.parametrize("column", LEARNED)
def test_nobody_imitates_a_heuristic_without_saying_so_and_all_have_one_schedule(column):
    learned = LEARNED[column]
    config = configured(learned, seed=3, updates=7)
    assert (config.seed, config.training.updates, config.policy.schedule) == (3, 7, "critical-path")
    assert bool(config.training.warm_start.updates) == learned.taught == column.endswith(", taught")


@pytest.mark.parametrize("study", ABLATIONS.values(), ids=ABLATIONS)
def test_an_ablation_changes_what_its_first_column_is(study):
    configs = [configured(column, seed=3, updates=7) for column in study.values()]
    assert all(one != other for place, one in enumerate(configs) for other in configs[:place])
    assert next(iter(study)) in MAIN


def test_evaluations_are_counted_with_the_best_so_far():
    problem, watched = problem_of("transformer-xl-2", "k40-2"), Watched()
    both = on_each(problem, [0, 1])
    watched(problem, [both[0]])
    watched(problem, both)
    cell = watched.cell(budget=3)
    assert (cell["evaluations"], cell["best_ns"]) == (3, min(watched.times)) and watched.times[0] == watched.times[1]
    assert cell["near_evaluations"] == 1 + watched.times.index(min(watched.times)) and 0 <= cell["near_seconds"] <= cell["seconds"]
    with pytest.raises(ValueError, match="3 of a budget of 2"):
        watched.cell(budget=2)


def test_a_curve_knows_the_best_so_far_and_the_mean_of_each_block():
    times = [None, None, 8, 4, 6, None, 2]
    assert curve(times, budget=100) == {"evaluations": [2, 4, 6, 7], "best_ns": [None, 4, 4, 2], "mean_ns": [None, 6, 6, 2]}


@pytest.mark.parametrize(("column", "steps"), [("colocrl, tuned", 1), ("go, tuned", 1), ("hsdag, tuned", 4)])
def test_an_episode_costs_what_a_policy_has_evaluated(column, steps):
    assert of_an_episode(LEARNED[column].config(0), problem_of("transformer-xl-2", "k40-2")) == steps


def test_a_policy_that_has_no_room_for_an_update_says_so():
    cell = run.policy("transformer-xl-2", "k40-2", "colocrl, tuned", evaluations=64, seed=0)
    assert cell == {"updates": 0, "evaluations_an_update": 64, "left": 63}
    assert table.nothing([cell]) == "no update fits"


@pytest.mark.parametrize("column", ["random", "hill-climb", "colocrl, tuned"])
def test_nobody_spends_more_than_the_budget(column):
    function = run.search if column in ("random", "hill-climb") else run.policy
    cell = function("transformer-xl-2", "k40-2", column, 140, 0)
    assert cell["evaluations"] + cell.get("left", 0) == 140 and cell["best_ns"]


def test_the_tables_show_ratios_with_intervals_and_what_is_missing():
    found = made_up(random=16, hill_climb=6, policy=8, broken=None)
    rows = [table.summary(found, PROBLEMS, planner, 100) for planner in ("random", "policy", "broken")]
    random, policy, broken = (dict(zip(table.HEADER, row, strict=True)) for row in rows)
    assert random["over the best heuristic"].startswith("2.47 [2.47") and policy["over the bound"].startswith("2.47")
    assert (policy["infeasible"], policy["evaluations to within 5 % of its best"], policy["given"]) == ("50 %", "41", "-")
    assert broken["over the bound"] == "-"
    assert table.ratio(found, PROBLEMS[0], "policy", 100) == "1.250 [1.000 - 1.500]"
    assert table.ratio(found, PROBLEMS[0], "broken", 100) == "none fits"
    text = table.budget(found, PROBLEMS, ("policy", "absent"), 100)
    assert "absent" not in text and "8.00 (heft)" in text and "0.500" in text
    assert table.budget(found, PROBLEMS, ("policy",), 1000) == ""


def test_a_batch_is_no_family_of_its_own():
    assert {table.family(graph) for graph, _ in PROBLEMS} == {"resnet-50", "inception-v3", "nmt-2"}


def test_an_ablation_is_over_its_first_column():
    found = made_up(policy=8, changed=4)
    text = table.ablation(found, "Changes", ["policy", "changed"], PROBLEMS[:1], 100)
    assert "| changed | 5.00 [4.00 - 6.00] | 0.500 [0.400 - 0.600] | 7 |" in text
    assert table.ablation(found, "Changes", ["policy", "absent"], PROBLEMS[:1], 100) == ""


def test_a_picture_of_what_there_is(tmp_path):
    picture.draw(
        made_up(random=16, policy=8, broken=None),
        "resnet-50",
        ("k40-2", "mixed-4"),
        ("random", "policy", "broken", "absent"),
        tmp_path / "a.png",
    )
    picture.draw({}, "resnet-50", ("k40-2",), ("policy",), tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG" and not (tmp_path / "b.png").exists()


def test_the_command_line_chooses_cells():
    chosen = argparse.Namespace(budgets=[1000], seeds=1, graphs=["resnet-50"], clusters=["k40-2"], columns=["random", "heuristics"])
    assert list(run.asked(chosen)) == ["resnet-50/k40-2/heuristics", "resnet-50/k40-2/random/1000/0"]
