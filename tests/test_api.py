"""The Python API gives the results of the commands, and imports lazily."""

from __future__ import annotations

import doctest
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.fork_on_pair import CLUSTER, GRAPH, PLACEMENT, run
from support.short_searches import shorten_searches
from support.slow import slow

import gnnplace as gp
from gnnplace import api, runs
from gnnplace.formats import documents
from gnnplace.isolation import python


@pytest.fixture(autouse=True)
def short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_searches(monkeypatch)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    for name, document in (("graph", GRAPH), ("cluster", CLUSTER), ("placement", PLACEMENT)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def problem(folder) -> Iterator[gp.Problem]:
    yield gp.problem("graph.json", cluster="cluster.json")


@pytest.mark.parametrize("module", [gp, slow(api), slow(runs), documents], ids=["gnnplace", "api", "runs", "documents"])
def test_examples_of_docstrings_run(module):
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert found.attempted and not found.failed


def test_importing_it_imports_no_framework_and_all_its_names_exist():
    program = (
        "import sys, gnnplace as gp; heavy = ('torch', 'tensorflow', 'numba', 'lightning', 'mlflow');"
        "assert not [name for name in heavy if name in sys.modules];"
        "gp.simulate, gp.place; assert 'torch' not in sys.modules and 'tensorflow' not in sys.modules"
    )
    subprocess.run(python.command("-c", program), env=python.environment(), check=True)
    assert set(gp.__all__) <= set(dir(gp)) and "place" in gp.__all__
    assert gp.problem is api.problem and gp.__version__
    with pytest.raises(AttributeError, match="no attribute 'plaice'"):
        _ = gp.plaice


def test_every_name_is_found():
    frameworks = ("KerasModel", "TensorFlowFunction")  # import TensorFlow
    assert all(getattr(gp, name) is not None for name in gp.__all__ if name not in frameworks)


def test_a_placement_is_saved_loaded_and_simulates_as_the_command_says(problem, capsys):
    placement = gp.load("placement.json", problem)
    step = gp.simulate(problem, placement)
    status, out, _ = run(capsys, "simulate", "graph.json", "--cluster", "cluster.json", "--placement", "placement.json", "--json")
    assert status == 0 and json.loads(out)["step_time_ns"] == step.step_time_ns and json.loads(out)["bound_ns"] == gp.lower_bound(problem)
    gp.save(placement, "again.json", problem)
    assert gp.load("again.json", problem).device.tolist() == placement.device.tolist() == [0, 1, 0]
    gp.save(problem.graph, "g.json"), gp.save(problem.cluster, "c.json")
    assert gp.load("g.json").sha256 == problem.graph.sha256 and gp.load("c.json").sha256 == problem.cluster.sha256
    with pytest.raises(ValueError, match="saved with its problem"):
        gp.save(placement, "no.json")
    with pytest.raises(ValueError, match=r"again\.json: format: a placement is loaded with its problem"):
        gp.load("again.json")
    Path("other.json").write_text('{"format": "other"}')
    with pytest.raises(ValueError, match=r"other\.json: format: 'other' is none of gnnplace\.graph"):
        gp.load("other.json")


def test_best_is_never_slower_than_a_planner_that_is_named(problem):
    best = gp.simulate(problem, gp.place(problem, evaluations=300)).step_time_ns
    assert best <= gp.simulate(problem, gp.place(problem, "heft")).step_time_ns
    with pytest.raises(ValueError, match="seconds: is a budget of planner 'best'"):
        gp.place(problem, "heft", seconds=1.0)
    with pytest.raises(ValueError, match="'heff' is no planner; nearest is 'heft'"):
        gp.place(problem, "heff")


def test_a_budget_and_a_constraint_are_given_in_one_way():
    problem = gp.problem("dlrm", cluster="k40-2")
    budget, constraint = gp.Budget(evaluations=40), gp.Constraint("module", accelerators_only=True)
    long = gp.place(problem, budget=budget, constraint=constraint)
    short = gp.place(problem, evaluations=40, granularity="module", accelerators_only=True)
    assert long.device.tolist() == short.device.tolist() and 0 < budget.spent <= 41
    with pytest.raises(ValueError, match="budget: is given, and seconds, too"):
        gp.place(problem, budget=budget, seconds=1.0)
    with pytest.raises(ValueError, match="constraint: is given, and accelerators only, too"):
        gp.place(problem, constraint=constraint, accelerators_only=True)
    with pytest.raises(ValueError, match="budget: is a budget of planner 'best', and of no other"):
        gp.place(problem, "heft", budget=budget)


def test_a_policy_is_any_function_of_a_problem(problem):
    def all_on_the_gpu(problem: gp.Problem) -> gp.Placement:
        return gp.Placement(np.ones(problem.num_ops, dtype=np.int32))

    assert gp.place(problem, all_on_the_gpu).device.tolist() == [1, 1, 1]
    rows = gp.compare(problem, all_on_the_gpu, evaluations=20)
    own = next(row for row in rows if row.planner == "policy 1")
    assert own.step_time_ns == gp.simulate(problem, own.placement).step_time_ns and rows[0].step_time_ns <= own.step_time_ns


def test_a_step_of_pytorch_becomes_a_problem():
    torch = pytest.importorskip("torch")
    step = gp.TorchStep(torch.nn.Linear(8, 2), lambda module, x: module(x).square().mean(), (torch.randn(4, 8),))
    problem = gp.problem(step, cluster="k40-2", name="linear")
    assert problem.graph.name == "linear" and gp.simulate(problem, gp.place(problem, "gpu")).infeasible is None
    with pytest.raises(ValueError, match="graph: is a Linear, which has no inputs yet; give TorchInference"):
        gp.problem(torch.nn.Linear(8, 2), cluster="k40-2")


def test_a_trained_policy_is_saved_and_loaded(problem, folder):
    knobs = {"training.updates": 2, "training.warm_start.updates": 1, "training.placements": 4, "policy.width": 8, "policy.hidden": 8}
    trained = gp.train(problem, "unit-placer", knobs=knobs, teachers=[gp.place(problem, "heft")])
    gp.save(trained, "checkpoint.safetensors")
    policy = gp.load_policy("checkpoint.safetensors")
    assert policy(problem).device.tolist() == trained.policy(problem).device.tolist()
    assert trained.best[0] is not None and gp.load_policy("checkpoint.safetensors", samples=4)(problem).device.shape == (3,)
    assert (policy.name, policy.encoder) == ("unit-placer", "gnn")


def test_a_graph_of_networkx_comes_back(problem):
    assert gp.from_networkx(gp.to_networkx(problem.graph)).sha256 == problem.graph.sha256
