"""Ops whose flops no rule counts are named wherever a plan's numbers stand, whatever the graph was made from."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

import gnnplace as gp
from gnnplace import cli
from gnnplace.caveats import MOST_KINDS, caveats
from gnnplace.formats.documents import load

TEXT = "no rule counts the flops of 3 ops: Det (1), mine.Odd (2); unless measured, they take the time of their bytes alone"
OP = gp.Op("x", "mine.Odd", (gp.Output(4096),), canonical_kind="other")


def graph(*ops: gp.Op) -> gp.ComputationGraph:
    return gp.ComputationGraph.from_ops("net", ops, [(op, 0, op + 1) for op in range(len(ops) - 1)])


UNRULED = graph(OP, replace(OP, name="y"), replace(OP, name="z", kind="Det"))


def test_a_kind_without_a_rule_is_named_with_its_number_of_ops() -> None:
    assert UNRULED.uncounted == {"Det": 1, "mine.Odd": 2} and caveats(UNRULED) == [TEXT]


@pytest.mark.parametrize(
    "known",
    [{"flops": 1}, {"time_ns": {"cpu": 5}}, {"kernel": False}, {"canonical_kind": "reshape"}, {"canonical_kind": None}],
    ids=lambda known: next(iter(known)),
)
def test_an_op_that_states_its_work_or_has_none_is_not_named(known: dict[str, object]) -> None:
    assert caveats(graph(replace(OP, **known))) == []


def test_many_kinds_are_counted_and_the_first_named() -> None:
    (text,) = caveats(graph(*(replace(OP, name=f"{op}", kind=f"K{op:02}") for op in range(MOST_KINDS + 3))))
    assert "K19 (1) and 3 more kinds;" in text and "K20" not in text


def test_a_plan_of_a_graph_that_was_read_carries_the_warnings(tmp_path: Path) -> None:
    gp.save(UNRULED, tmp_path / "net.json")
    with pytest.warns(UserWarning, match="^net: no rule counts"):
        problem = gp.problem(load(tmp_path / "net.json"), cluster="k40-2")
    plan = gp.place(problem, "gpu")
    assert plan.warnings == [TEXT]
    plan.save(tmp_path / "placement.json")
    assert json.loads((tmp_path / "placement.json").read_text())["warnings"] == [TEXT]
    assert (gp.load(tmp_path / "placement.json", problem).device == plan.device).all()
    pytest.importorskip("plotly")
    plan.report(tmp_path / "report.html")
    assert f"Warning: {TEXT}" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_commands_warn_and_print_the_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gp.save(UNRULED, tmp_path / "net.json")
    where = [str(tmp_path / "net.json"), "--cluster", "k40-2", "-q", "--json"]
    placement = str(tmp_path / "placement.json")
    for command in (
        ["place", *where, "--planner", "gpu", "-o", placement],
        ["explain", *where, "--placement", placement],
        ["compare", *where, "--evaluations", "1"],
    ):
        assert cli.main(command) == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["warnings"] == [TEXT] and err == f"net: {TEXT}\n"


def test_a_graph_that_is_counted_has_no_warning() -> None:
    with warnings.catch_warnings(action="error"):
        assert gp.place(gp.problem("dlrm", cluster="k40-2"), "gpu").warnings == []
