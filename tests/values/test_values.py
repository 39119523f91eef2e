"""Documents by value: a few that are refused or read in `make test`, a sample in `make test-all`; that the harness sees what it has to."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnplace.problems import Problem
from tests.reliability import Case
from tests.values import tried
from tests.values.cases import ValueCase, cases
from tests.values.documents import DOCUMENTS, VALUES, all_changed

ALL = {(case.kind, case.name): case for case in cases()}
CORE = [
    ("values of graph", "one ops.outputs.bytes is 9223372036854775808"),
    ("values of graph", "every ops.flops is 1152921504606846976"),
    ("values of cluster", "every devices.flops_per_s.float32 is 0"),
    ("values of costs", "every time_ns.cpu is 9007199254740993"),
]
SAMPLE = [
    ("values of placement", "one priority is 9223372036854775807"),
    ("values of cluster", "one devices.memory_bytes is 0"),
    ("values of cluster", "every devices.memory_bytes is 0"),
    ("values of cluster", "every devices.memory_bytes is 1152921504606846976"),
    ("values of cluster", "every links.bandwidth_bytes_per_s is 1"),
    ("values of cluster", "every links.latency_ns is 2147483649"),
    ("values of graph", "one ops.block is 2147483647"),
    ("values of graph", "every ops.outputs.bytes is 0"),
    ("values of graph", "one ops.time_ns.gpu is 1125899906842624"),
    ("values of costs", "one time_ns.gpu is 1125899906842624"),
    ("values of costs", "every links.samples.1 is 0"),
]


@pytest.mark.parametrize("case", CORE, ids=" ".join)
def test_a_value_is_planned_or_refused(case: tuple[str, str], tmp_path: Path) -> None:
    assert ALL[case].broken(tmp_path / "case") is None


@pytest.mark.slow
@pytest.mark.parametrize("case", SAMPLE, ids=" ".join)
def test_a_value_is_planned_within_limits_as_integers_of_any_size_count_it(case: tuple[str, str], tmp_path: Path) -> None:
    assert ALL[case].broken(tmp_path / "case") is None


def test_every_numeric_field_of_every_format_has_every_value() -> None:
    assert len(ALL) == len(list(all_changed())) > 1000 and all(isinstance(case, Case) for case in ALL.values())
    assert {kind for kind, _ in ALL} == {f"values of {kind}" for kind in DOCUMENTS}
    assert {0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1} <= set(VALUES)
    for field in ("edges.1", "ops.outputs.alias_of.0", "ops.outputs.shape.1", "ops.time_ns.cpu", "ops.block"):
        assert ("values of graph", f"one {field} is {2**53}") in ALL


@pytest.mark.parametrize("fault, said", [
    (lambda: "said so", "planned: said so"), (lambda: 1 // 0, "planned: ZeroDivisionError"), (lambda: exec("while True: pass"), "SIGXCPU"),
    (lambda: len(bytearray(2**34)), "MemoryError"),
], ids=["a word", "an error", "no end", "all memory"])  # fmt: skip
def test_what_does_not_hold_is_seen(fault, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.values.cases.CPU_S", 1)
    monkeypatch.setattr("tests.values.cases.all_of", lambda kind, documents: [("planned", fault)])
    assert said in str(ValueCase(next(all_changed())).broken(tmp_path / "case"))


def test_a_wrong_step_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were a time counted in floats, or a bound above a step, the plain simulator would say so."""
    problem, plain = tried.problem_of(DOCUMENTS["graph"], DOCUMENTS["cluster"]), (DOCUMENTS["graph"], DOCUMENTS["cluster"])
    heft = tried.planners.planner("heft", tried.simulate, 0)(problem)
    assert tried._held(problem, plain, heft) is None
    longer = Problem(problem.graph, problem.cluster, problem.time_ns + 1)
    assert "due are" in str(tried._held(longer, plain, heft))
    monkeypatch.setattr(tried, "lower_bound", lambda problem: 2**53)
    assert "a bound of" in str(tried._held(problem, plain, heft))
