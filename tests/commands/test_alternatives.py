"""What people would do: `place` prints it and its document keeps it, `explain` sets the plan beside the best of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.fork_on_pair import run
from support.graphs import equal_gpus
from support.layered import layered

import gnnplace as gp
from gnnplace.constraints import Stages
from gnnplace.costs.roofline import problem
from gnnplace.portfolio import comparison, forms
from gnnplace.portfolio.candidates import BY_SCORE, Candidate, leaves_form
from gnnplace.problems import Problem
from gnnplace.result import Evaluator
from gnnplace.simulator.simulator import simulate
from gnnplace.transformations.micro_batches import micro_batches

IN = ("graph.json", "--cluster", "cluster.json")
SHORT = ("--evaluations", "5", "--search", "plain", "-q")


@pytest.fixture
def layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with a network of layers on two cards; few rules, quickly asked, and a search that only renames the best."""
    gp.save(layered(2), tmp_path / "graph.json")
    gp.save(equal_gpus(2), tmp_path / "cluster.json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(forms, "all_rules", few_rules)
    monkeypatch.setattr(comparison, "best_of_forms", lambda *given: replace(min(given[4], key=BY_SCORE), planner="climb"))
    return tmp_path


def few_rules(problem: Problem, evaluate: Evaluator, stages: Stages | None = None) -> list[Candidate]:
    if not leaves_form(problem):
        return []
    return [*(forms.by_rule(name, problem, evaluate) for name in ("one-card", "ddp", "fsdp")), next(forms.by_pipelines(problem, evaluate))]


def test_place_says_what_people_would_do_and_explain_why_not(layers: Path, capsys: pytest.CaptureFixture[str]):
    status, out, err = run(capsys, "place", *IN, "--micro-batches", "4", *SHORT, "-o", "plan.json")
    assert (status, err) == (0, "") and "what people do" in out and "one card" in out and "> " in out
    document = json.loads((layers / "plan.json").read_text())
    steps, advice = document["alternatives"]["steps"], document["alternatives"]["advice"]
    assert out.endswith(f"{advice}\n")
    assert {"one-card", "ddp", "fsdp"} <= {step["planner"] for step in steps} and sum(step["plan"] for step in steps) == 1
    assert [step["micro_batch_time_ns"] for step in steps] == sorted(step["micro_batch_time_ns"] for step in steps)
    (plan,) = [step for step in steps if step["plan"]]
    assert plan["step_time_ns"] == document["predicted"]["step_time_ns"]

    best = next(step for step in steps if not step["plan"])
    status, out, err = run(capsys, "explain", *IN, "--placement", "plan.json")
    assert (status, err) == (0, "") and "the best rule" in out and "computes / waits / idle" in out
    beside = json.loads(run(capsys, "explain", *IN, "--placement", "plan.json", "--json")[1])["beside"]
    assert beside["plan"]["step_time_ns"] == plan["step_time_ns"] and beside["rule"]["step_time_ns"] == best["step_time_ns"]


def test_json_of_place_has_the_same(layers: Path, capsys: pytest.CaptureFixture[str]):
    out = run(capsys, "place", *IN, "--micro-batches", "4", *SHORT, "--json")[1]
    assert json.loads(out)["alternatives"]["advice"]


def test_one_planner_and_one_micro_batch_have_no_alternatives(layers: Path, capsys: pytest.CaptureFixture[str]):
    for options in (("--micro-batches", "4", "--planner", "ddp", "-q"), SHORT):
        status, out, _ = run(capsys, "place", *IN, *options, "-o", "plan.json")
        assert status == 0 and "what people do" not in out and "alternatives" not in json.loads((layers / "plan.json").read_text())
        assert "the best rule" not in run(capsys, "explain", *IN, "--placement", "plan.json")[1]


@pytest.mark.parametrize("form", [("--copies", "together"), ("--replicas", "1")])
def test_best_keeps_a_form_that_is_named(layers: Path, capsys: pytest.CaptureFixture[str], form: tuple[str, str]):
    given = ("place", *IN, "--micro-batches", "4", *SHORT, "--json")
    assert "alternatives" in json.loads(run(capsys, *given)[1])
    status, out, err = run(capsys, *given, *form)
    assert (status, err) == (0, "") and not {"alternatives", "replicas", "copies"} & json.loads(out).keys()


def test_auto_has_the_number_of_each(layers: Path, capsys: pytest.CaptureFixture[str]):
    status, out, err = run(capsys, "place", *IN, "--micro-batches", "auto:4", *SHORT, "-o", "plan.json")
    document = json.loads((layers / "plan.json").read_text())
    steps = document["alternatives"]["steps"]
    assert (status, err) == (0, "") and document["micro_batches"] == next(step for step in steps if step["plan"])["micro_batches"]
    assert {step["micro_batches"] for step in steps} <= {1, 2, 4} and "what people do" in out


def test_a_plan_has_its_alternatives(layers: Path):
    given = problem(micro_batches(layered(2), 4), equal_gpus(2))
    plan = gp.place(given, evaluations=5, search="plain")
    assert {"one-card", "fsdp", "gpipe"} <= {each.planner for each in plan.alternatives} and plan.advice
    assert all(simulate(each.form, [each.placement])[0].step_time_ns == each.step_time_ns for each in plan.alternatives)
    assert plan.beside().plan.step_time_ns == plan.step.step_time_ns
    alone = gp.place(given, "ddp")
    assert alone.alternatives == () and alone.advice is None and alone.beside() is None


def test_the_page_has_the_table(layers: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("plotly", reason="needs gnnplace[report]")
    options = ("--micro-batches", "2", *SHORT, "--report", "page.html", "-o", "plan.json")
    assert run(capsys, "place", *IN, *options)[0] == 0
    page = (layers / "page.html").read_text()
    assert "What people would do" in page and "<td>one card</td>" in page
    assert run(capsys, "explain", *IN, "--placement", "plan.json", "--report", "again.html")[0] == 0
    assert "What people would do" in (layers / "again.html").read_text()
