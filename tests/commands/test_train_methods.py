"""`train --policy a,b --evaluations N`: several policies beside one another, searches with as many evaluations, and the bound."""

import json

import numpy as np
import pytest

from gnnplace import cli
from gnnplace.config import files
from gnnplace.simulator.simulator import simulate
from gnnplace.training.run.evaluations import searches
from gnnplace.training.run.problems import simulated
from gnnplace.training.run.zero_shot import planner

SMALL = [
    "--problems=[[dlrm, k40-2]]", "--training.placements=2", "--training.groupings=1",
    "--training.warm_start.updates=0", "--tracking=none", "--training.threads=1", "--quiet",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a file of knobs, `mine.yaml`."""
    folder = tmp_path_factory.mktemp("methods")
    (folder / "mine.yaml").write_text(files.to_yaml(files.read_settings("unit-placer", None, ["--policy.width=8", "--name=mine"])))
    return folder


@pytest.mark.slow
def test_methods_stand_beside_searches_and_the_bound(folder, capsys):
    words = ["train", *SMALL, f"--policy={folder}/mine.yaml,unit-placer", "--seeds=0,2", "--evaluations=7", f"--runs={folder / 'a'}"]
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (compared,) = found["problems"]
    rows = {row["planner"]: row for row in compared["planners"]}
    assert list(rows) == [f"{folder}/mine.yaml", "unit-placer", "random", "hill-climb"] and compared["seeds"] == [0, 2]
    assert [row["evaluations"] for row in rows.values()] == [7, 7, 7, 7]
    (problem,) = simulated(files.read_settings("unit-placer", None, SMALL[:1]), quiet=True)
    times = [simulate(problem, [searches(problem, 7, seed, "critical-path")["hill-climb"]])[0].step_time_ns for seed in (0, 2)]
    assert rows["hill-climb"]["best_found"]["mean"] == pytest.approx(np.exp(np.log(times).mean())) and rows["random"]["greedy"] is None
    greedy = [simulate(problem, [planner(run["checkpoint"])(problem)])[0].step_time_ns for run in found["runs"]]
    assert rows["unit-placer"]["greedy"]["mean"] == pytest.approx(np.exp(np.log(greedy[2:]).mean()))
    assert [run["run"].rpartition("/")[2] for run in found["runs"]] == ["mine-1", "mine-2", "unit-placer-1", "unit-placer-2"]
    assert compared["bound_ns"] < compared["best_heuristic"]["step_time_ns"] < rows["random"]["best_found"]["mean"]


@pytest.mark.slow
def test_the_table_names_each_method_once(folder, capsys):
    assert cli.main(["train", *SMALL, "--policy=unit-placer,colocrl", "--training.updates=1", f"--runs={folder / 'b'}"]) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    assert title.strip() == "dlrm (250 ops) on k40-2, seeds 0"
    starts = [line.split("  ")[0] for line in lines[3:]]
    assert starts[:2] == ["unit-placer", "colocrl"] and starts[2].startswith("best heuristic: ") and starts[3].startswith("lower bound")
    assert lines[-1].startswith("a page") and "unit-placer-1" in lines[-1] and "colocrl-1" in lines[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy=go,go"], "no list of different names"),
        (["--policy=go,nobody"], "nobody"),
        (["--policy=hierarchical,improver"], "improver and hierarchical differ in problems; say --problems for all of them"),
        (["--policy=go", "--evaluations=9", "--problems=[[dlrm, k40-2], [gcn, k40-2]]"], "counts simulated steps of one problem"),
    ],
)
def test_what_can_not_be_compared_is_refused_before_the_work(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", *words])
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_a_budget_below_one_update_is_one_line(capsys):
    assert cli.main(["train", *SMALL[:1], "--policy=unit-placer", "--evaluations=64", "-q"]) == 4
    assert capsys.readouterr().err == (
        "gnnplace train: evaluations: 64 are too few for unit-placer, whose update takes 64 of dlrm besides a greedy placement\n"
    )
