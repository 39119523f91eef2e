"""`train --seeds`: each seed's run equals the run alone; the table at the end is over all seeds."""

import json

import numpy as np
import pytest
from scipy import stats

from gnnplace import cli

WORDS = [
    "train", "--policy", "unit-placer", "--problems=[[dlrm, k40-2]]", "--training.updates=1", "--training.placements=2",
    "--training.warm_start.updates=0", "--tracking", "none", "--quiet",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("seeds")


def printed(capsys, *words):
    assert cli.main([*WORDS, *words]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_each_seed_is_a_run_and_intervals_are_over_them(folder, capsys):
    found = json.loads(printed(capsys, "--seeds", "3,5", "--json", f"--runs={folder / 'a'}"))
    alone = json.loads(printed(capsys, "--seed", "5", "--json", f"--runs={folder / 'b'}"))
    rows = [{row["planner"]: row["step_time_ns"] for row in run["problems"][0]["planners"]} for run in [*found["runs"], alone]]
    assert rows[1]["policy, greedy"] == rows[2]["policy, greedy"]
    (problem,) = found["problems"]
    assert problem["seeds"] == [3, 5]
    logs = np.log([row["policy, greedy"] for row in rows[:2]])
    half = stats.t.ppf(0.975, 1) * logs.std(ddof=1) / 2**0.5
    assert problem["greedy"]["mean"] == pytest.approx(np.exp(logs.mean()))
    assert problem["greedy"]["high"] == pytest.approx(np.exp(logs.mean() + half))
    baselines = {ns: name for row in rows[:2] for name, ns in row.items() if ns is not None and not name.startswith("policy")}
    assert problem["best_baseline"]["step_time_ns"] == min(baselines)
    assert problem["bound_ns"] <= problem["best_found"]["mean"] * (1 + 1e-9)


@pytest.mark.slow
def test_the_table_says_how_to_see_more(folder, capsys):
    shown = printed(capsys, "--seeds", "0,1", f"--runs={folder / 'c'}")
    assert "seeds 0, 1" in shown and "best baseline" in shown and "gnnplace report" in shown.splitlines()[-1]


@pytest.mark.parametrize("text", ["0,", "a", "1,1", "-1"])
def test_what_is_no_list_of_seeds_is_refused_in_one_line(text, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([*WORDS, f"--seeds={text}"])
    assert ended.value.code == 2 and "no list of different numbers" in capsys.readouterr().err
