"""Hostile files: some in `make test`, every fifth in `make test-all`, all in `make thorough`; and the harness sees what it has to see."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from support.slow import slow, thorough

from tests.hostile import confined
from tests.hostile.cases import cases
from tests.hostile.command_case import HostileFile
from tests.hostile.documents import GRAPH
from tests.reliability import Case

EVERY = 160
CHILD = ("ONNX", "GraphDef")  # of packages that the core of the tests does without
ALL = list(cases())
CORE = [case for case in ALL if case.kind not in CHILD and "100 MB" not in case.name]


def _held(case: Case, folder: Path) -> None:
    assert case.broken(folder / "case") is None


@pytest.mark.parametrize("case", CORE[::EVERY], ids=lambda case: f"{case.kind}: {case.name}")
def test_hostile_input_ends_in_one_line(case: Case, tmp_path: Path) -> None:
    _held(case, tmp_path)


@pytest.mark.parametrize("every", [slow(5), thorough(1)])
@pytest.mark.parametrize("kind", sorted({case.kind for case in ALL}))
def test_hostile_input_of_a_kind_ends_in_one_line(kind: str, every: int, tmp_path: Path) -> None:
    broken = {}
    for number, case in enumerate([case for case in ALL if case.kind == kind][::every]):
        said = case.broken(tmp_path / str(number))
        if said is not None:
            broken[case.name] = said
    assert not broken


def test_there_are_at_least_600_and_each_has_a_name_of_its_own() -> None:
    assert len(ALL) >= 600 and len({(case.kind, case.name) for case in ALL}) == len(ALL)
    assert {"graph", "cluster", "placement", "costs", "checkpoint", "YAML", "OpenVINO", "profile"} <= {case.kind for case in ALL}
    assert all(isinstance(case, Case) for case in islice(ALL, 5))


SHOW = ("graphs", "show", "./graph.json")
GOOD = {"graph.json": json.dumps(GRAPH).encode()}


def test_a_case_that_ends_otherwise_is_broken(tmp_path: Path) -> None:
    assert "ended with 0" in str(HostileFile("graph", "good", SHOW, GOOD).broken(tmp_path / "a"))
    assert "is not said" in str(HostileFile("graph", "other words", SHOW, {"graph.json": b"{"}, "never said").broken(tmp_path / "b"))


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("open('/etc/hostname' if False else '../secret')", "opened '../secret'"),
        ("import os; os.system('true')", "os.system"),
        ("import subprocess; subprocess.run(['true'])", "started ['true']"),
        ("import pickle; pickle.loads(b'cposix\\ngetpid\\n.')", "unpickled ('posix', 'getpid')"),
        ("import socket; socket.socket().connect(('127.0.0.1', 1))", "socket.connect"),
    ],
)
def test_what_a_command_must_not_do_is_seen(code: str, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").touch()
    (tmp_path / "case").mkdir()

    def command(arguments: list[str]) -> int:
        try:
            exec(code)
        except OSError:
            return 4
        return 0

    monkeypatch.setattr(confined.cli, "main", command)
    assert seen in confined.run((), tmp_path / "case", (), 10, 2**30).seen


@pytest.mark.slow
def test_memory_and_time_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined.cli, "main", lambda arguments: len(bytearray(2**33)))
    assert "MemoryError" in confined.run((), tmp_path, (), 10, 2**30).err
    monkeypatch.setattr(confined.cli, "main", lambda arguments: sum(1 for _ in iter(int, 1)))
    assert confined.run((), tmp_path, (), 1, 2**30).status < 0
