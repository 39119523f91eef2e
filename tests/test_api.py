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
    with pytest.raises(ValueError, match=r"^devices: 'gpu:0' is no sequence of names; give a single one as \('gpu:0',\)$"):
        gp.place(problem, "heft", devices="gpu:0")
    with pytest.raises(ValueError, match="constraint: is given, and accelerators only, too"):
        gp.place(problem, constraint=constraint, accelerators_only=True)
    with pytest.raises(ValueError, match="budget: is a budget of planner 'best', and of no other"):
        gp.place(problem, "heft", budget=budget)


def test_a_step_of_micro_batches_is_placed_saved_and_loaded(folder):
    def step(*parallelism, **named):
        return gp.problem("dlrm", "k40-2", **dict(zip(("micro_batches", "copies", "shared"), parallelism, strict=False)), **named)

    four, free = step(4), step(4, "free", ["input_1"])
    plan = gp.place(free, "heft")
    assert repr(plan).startswith("Plan(4 micro-batches of dlrm on k40-2, critical-path, ") and repr(plan).endswith(" ms a micro-batch)")
    with pytest.raises(
        ValueError, match=r"^micro_batches: a graph document holds one, and 'dlrm' is a step of 4; save its `original`, and"
    ):
        gp.save(free.graph, "step.json")
    assert gp.explain(free, plan).step_time_ns == plan.step.step_time_ns >= plan.bound_ns
    plan.save("four.json")
    document = json.loads(Path("four.json").read_text())
    assert (document["micro_batches"], document["copies"], document["shared"]) == (4, "free", ["input_1"])
    assert document["graph"] == {"name": "dlrm", "sha256": step().graph.sha256, "ops": step().num_ops}
    assert (gp.load("four.json", step(4, "free", ["input_1"])).device == plan.device).all()
    differing = {"copies: 'free' is not 'together'": four, "micro_batches: 4 is not 1": step(), "micro_batches: 4 is not 8": step(8)}
    for difference, other in differing.items():
        with pytest.raises(ValueError, match=rf"^four\.json: {difference}, that of the step of 'dlrm'; .* is for another step$"):
            gp.load("four.json", other)
    rows = gp.table(free, gp.compare(free, evaluations=2))
    assert (rows.micro_batches == 4).all() and (rows.micro_batch_time_ns == (rows.step_time_ns / 4).round()).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"micro_batches": 0}, "micro_batches: 0 is no number of micro-batches; at least 1"),
        ({"micro_batches": 10**12}, "micro_batches: 1000000000000 are more than the 10,000,000 ops"),
        ({"micro_batches": 2, "shared": ("users",)}, "shared: 'users' is no input of the graph; those are input_0, input_1, input_2"),
        ({"micro_batches": 2, "shared": "input_1"}, r"shared: 'input_1' is no sequence of names; give a single one as \('input_1',\)$"),
        ({"micro_batches": 2, "replicas": 2, "one_home": "*"}, r"one_home: '\*' is no sequence of names; give a single one as \('\*',\)$"),
        ({"fetches": "loss"}, r"fetches: 'loss' is no sequence of names; give a single one as \('loss',\)$"),
    ],
)
def test_what_is_no_step_of_micro_batches_is_refused(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        gp.problem("dlrm", "k40-2", **arguments)


def test_what_runs_the_model_runs_one_micro_batch(folder):
    problem = gp.problem("squeezenet", "k40-2", micro_batches=2)
    plan = gp.place(problem, "gpu")
    with pytest.raises(ValueError, match=r"^accelerate: runs the model as it is, one micro-batch a step, and this step has 2"):
        gp.export(problem, plan, "accelerate", "map.json")
    assert gp.export(problem, plan, "dot", "step.dot") is None and Path("step.dot").stat().st_size


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
