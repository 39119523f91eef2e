"""Nothing of the folder in which a command runs is read, imported or run; `make reliability` tries every command (tests/traps/cases.py)."""

import sys
from pathlib import Path

import pytest
from traps import planted, watched
from traps.cases import cases

SAMPLE = {
    "traps, as installed": {"place a module, with a report", "simulate, with a picture", "train"},
    "traps, python -m": {"place", "place ONNX"},
}
ALL = list(cases())


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in ALL if case.name in SAMPLE[case.kind]], ids=lambda case: f"{case.kind}: {case.name}")
def test_no_trap_is_opened(case, tmp_path):
    assert case.broken(tmp_path / "case") is None


def test_cases_have_names_of_their_own():
    assert len({(case.kind, case.name) for case in ALL}) == len(ALL) >= 20


PROGRAMS = {
    "a setting": "open('matplotlibrc')",
    "one that is missing": "import contextlib\nwith contextlib.suppress(OSError):\n    open('../.missing')",
    "a folder's list": "import os; os.listdir('.git')",
    "a module": "import sys; sys.path.insert(0, ''); import colorsys",
    "by a child": "import subprocess, sys; subprocess.run([sys.executable, '-c', 'open(\".env\")'])",
    "a repository": "import subprocess; subprocess.run(['git', 'status'], capture_output=True)",
    "by C": "import ctypes; ctypes.CDLL(None).open(b'.netrc', 0)",
}


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_harness_sees(program, tmp_path):
    if program in ("by C", "a repository") and watched.STRACE is None:
        pytest.skip("strace is missing: what C opens is not seen")
    here = tmp_path / "parent" / "here"
    here.mkdir(parents=True)
    planted.plant(here, ["colorsys"])
    ended = watched.run([sys.executable, "-P", "-c", PROGRAMS[program]], here, tmp_path / "notes")
    assert watched.trapped(ended, here, []) or list(here.rglob(planted.EXECUTED))
    assert "colorsys" in ended.imported or program != "a module"


def test_traps_lie_where_libraries_look(tmp_path: Path):
    planted.plant(tmp_path, ["yaml"])
    assert {".numba_config.yaml", "matplotlibrc", ".env", ".git", "yaml.py", planted.FINDER} <= {path.name for path in tmp_path.iterdir()}
