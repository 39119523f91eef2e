"""Placeto's families: who is trained on and who is tested, equal evaluations, and tables and pictures of made-up cells."""

import math

import pytest

from datasets.build import enas
from experiments.placeto_families import picture, run, table
from experiments.placeto_families.members import SETS, TEST, TRAINING, VALIDATION, names
from experiments.placeto_families.settings import EPISODES, EVALUATIONS, GROUPS, OWN_EVALUATIONS, OWN_UPDATES, config


def made_up(placeto=(80, 90, 100)):
    """Cells of the family ptb in which every test member takes the same, in ns: three seeds of Placeto, one of all else."""
    found = {}
    for name in names(("ptb",), TEST):
        found[f"{name}/k40-2/fixed"] = {"one_device_ns": 200, "heuristics": {"gpu": 200, "heft": 100, "metis": None}, "bound_ns": 50}
        found[f"{name}/k40-2/own/0"] = {"best_ns": 75, "greedy_ns": 200, "hill_climb_ns": 70}
        found[f"{name}/k40-2/searched/0"] = {"random_ns": 240, "hill_climb_ns": 120}
    for policy, seed, time in (*(("placeto", seed, time) for seed, time in enumerate(placeto)), ("hierarchical", 0, None)):
        placed = {f"{name}.k40-2": {"greedy": 200, "best sample": time} for name in names(("ptb",), TEST)}
        found[f"ptb/k40-2/{policy}/{seed}"] = {"untrained": placed, "trained": placed}
    return found


def test_test_members_are_never_trained_on_and_every_member_is_one_or_the_other():
    assert sorted([*TRAINING, *TEST]) == list(range(enas.MEMBERS)) and set(VALIDATION) < set(TRAINING)
    assert sorted(name for part in (TRAINING, TEST) for name in names(SETS["mix"], part)) == sorted(enas.NAMES)


def test_an_episode_evaluates_as_many_placements_as_are_counted():
    placeto = config("placeto", 3)
    assert placeto.seed == 3 and placeto.policy.groups == GROUPS and placeto.policy.evaluates == "every"
    assert EVALUATIONS == EPISODES * (GROUPS + 1)
    shorter = config("placeto", 3, OWN_UPDATES).training
    assert shorter.updates == OWN_UPDATES and (shorter.updates * shorter.samples + 1) * (GROUPS + 1) == OWN_EVALUATIONS


@pytest.mark.parametrize("policy", ["placeto", "hierarchical"])
def test_no_policy_imitates_a_heuristic(policy):
    assert config(policy, 0).training.warm_start.updates == 0


def test_a_ratio_is_the_median_over_seeds_and_what_is_infeasible_is_slower_than_anything():
    of = table.times(made_up(), "ptb", "k40-2")
    assert table.ratios(of, table.SAMPLED, table.OWN) == [90 / 75] * len(TEST)
    assert table.ratios(of, table.HIERARCHICAL, table.OWN) == [math.inf] * len(TEST)
    assert table.ratios(of, table.HEURISTIC, table.ONE_DEVICE) == [0.5] * len(TEST)


def test_an_interval_is_of_members_drawn_again():
    assert table.interval([2.0] * 8) == "2.000 [2.000, 2.000]"
    assert table.interval([1, 2, 3, 4, 5, 6, 7, 8, math.inf]) == "5.000 [2.000, 8.000]"


def test_the_table_names_every_planner_that_has_cells_and_how_much_it_evaluated():
    text = table.table(made_up(), ["ptb", "mix"], "k40-2")
    assert text.startswith("## ptb, k40-2: 8 test members") and "mix" not in text
    assert f"| {table.SAMPLED} | {EVALUATIONS} | 0.900 [0.900, 0.900] | 0.450 [0.450, 0.450] | 1.200 [1.200, 1.200] | 3 |" in text
    assert f"| hill climbing, as long | {OWN_EVALUATIONS:,} | 0.700" in text


def test_a_panel_counts_members_and_seeds_and_a_picture_is_drawn_of_what_is_there(tmp_path):
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    picture.panel(axes, table.times(made_up(), "ptb", "k40-2"))
    line = next(line for line in axes.get_lines() if line.get_label() == table.SAMPLED)
    assert len(line.get_xdata()) == 3 * len(TEST) and line.get_ydata()[-1] == 1
    assert line.get_xdata()[0] == pytest.approx(80 / 75)
    picture.draw(made_up(), ["mix"], "k40-2", tmp_path / "none.png")
    picture.draw(made_up(), ["ptb", "mix"], "k40-2", tmp_path / "some.png")
    assert [path.name for path in tmp_path.iterdir()] == ["some.png"]


def test_jobs_train_one_hierarchical_policy_a_family_and_one_placeto_a_seed():
    made = run.jobs(["nmt", "mix"], ["k40-2"], 2)
    assert [name for name in made if name.startswith("mix/")] == ["mix/k40-2/placeto/0", "mix/k40-2/hierarchical/0", "mix/k40-2/placeto/1"]
    assert sum(name.endswith("/own/0") for name in made) == 3 * len(TEST)
