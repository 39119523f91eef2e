"""The program and its children import our libraries, not what lies in the folder in which the user happens to be."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.graphs import equal_gpus, op

from gnnplace.baselines.cp_sat import exact
from gnnplace.costs.roofline import problem
from gnnplace.execution import machine
from gnnplace.graph import ComputationGraph
from gnnplace.isolation import python
from gnnplace.version import VERSION

SOURCES = Path(python.__file__).parents[1]


@pytest.fixture
def marker(tmp_path, monkeypatch) -> Path:
    """A file that exists once code of the current folder has been run."""
    marker = tmp_path / "was run"
    for module in ("ortools", "torch", "numpy", "json"):
        (tmp_path / f"{module}.py").write_text(f"open({str(marker)!r}, 'w')\nraise SystemExit('stolen')\n")
    monkeypatch.chdir(tmp_path)
    return marker


def test_the_exact_search_does_not_run_code_of_the_current_folder(marker):
    exact._process.cache_clear()
    graph = ComputationGraph.from_ops("g", [op("a", 10), op("b", 20), op("c", 30)], [])
    assert exact.solve(problem(graph, equal_gpus(2)), exact.Limit(1.0)).step_time_ns == 30
    assert not marker.exists()


def test_asking_for_gpus_does_not_run_code_of_the_current_folder(marker):
    machine.gpus()
    assert not marker.exists()


def test_the_program_runs_no_code_of_the_current_folder(marker):
    for module in ("typing", "argparse", "yaml", "numba"):
        shutil.copy(marker.parent / "json.py", marker.parent / f"{module}.py")
    words = [sys.executable, "-m", "gnnplace", "graphs", "show", "dlrm"]
    done = subprocess.run(words, env=python.environment(), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "") and "dlrm" in done.stdout
    assert not marker.exists()


def test_the_program_runs_in_a_checkout(monkeypatch):
    monkeypatch.chdir(SOURCES.parent)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    done = subprocess.run([sys.executable, "-m", "gnnplace", "--version"], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, f"gnnplace {VERSION}\n")


def test_children_are_started_in_one_way():
    assert [path.name for path in SOURCES.rglob("*.py") if "sys.executable" in path.read_text()] == ["python.py"]
