"""The wheel in an environment of its own, its commands in an empty folder: nothing of the checkout is needed."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from gnnplace.corpus import manifest
from gnnplace.version import VERSION

ROOT = Path(__file__).parents[2]
FOLDERS, FILES = ("gnnplace", "checkpoints", "configs", "datasets"), ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
BEST_GPU_NS = 386_637_000  # of nmt-2 on k40-2: what no planner of the portfolio falls behind
FEW = (
    "--training.updates=1", "--training.grouping.updates=1", "--training.groupings=1", "--training.placements=2", "--policy.width=8",
    "--tracking=none",
)  # fmt: skip

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of a source distribution of this checkout, built beside it."""
    sources, built, unpacked = (tmp_path_factory.mktemp(name) for name in ("sources", "built", "unpacked"))
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, sources / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in FILES:
        shutil.copy(ROOT / file, sources)
    _checked([sys.executable, "-c", BUILD, "build_sdist", str(built)], sources)
    shutil.unpack_archive(next(built.glob("*.tar.gz")), unpacked, filter="data")
    _checked([sys.executable, "-c", BUILD, "build_wheel", str(built)], next(unpacked.iterdir()))
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """The programs of a fresh environment: gnnplace is the wheel's, everything else that of the environment which runs the tests."""
    folder = tmp_path_factory.mktemp("environment")
    _checked([sys.executable, "-m", "venv", str(folder)], folder)
    _checked([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)], folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    others = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "others.pth").write_text("\n".join(others) + "\n")
    return folder / "bin"


@pytest.fixture
def empty(tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def test_a_wheel_holds_package_and_data_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    data = {name.removeprefix("gnnplace/data/") for name in names if name.startswith("gnnplace/data/")}
    graphs = {f"datasets/graphs/{name}.arrow" for name in manifest.names()}
    clusters = {f"datasets/clusters/{path.name}" for path in (ROOT / "datasets" / "clusters").iterdir()}
    assert data == graphs | clusters | {
        "datasets/manifest.json",
        "configs/colocrl/published.yaml",
        "configs/colocrl/tuned.yaml",
        "configs/go/published.yaml",
        "configs/go/tuned.yaml",
        "configs/hierarchical/published.yaml",
        "configs/hierarchical/tuned.yaml",
        "configs/hsdag/published.yaml",
        "configs/hsdag/tuned.yaml",
        "configs/improver/tuned.yaml",
        "configs/placeto/published.yaml",
        "configs/placeto/tuned.yaml",
        "configs/unit-placer/tuned.yaml",
        "checkpoints/README.md",
        "checkpoints/improver-held-out.safetensors",
        "checkpoints/improver.safetensors",
    }
    modules = {
        str(path.relative_to(ROOT)) for path in (ROOT / "gnnplace").rglob("*") if path.suffix in (".py", ".json", ".typed", ".css", ".js")
    }
    assert {name for name in names if name.startswith("gnnplace/")} == modules | {f"gnnplace/data/{name}" for name in data}
    assert {name.split("/")[0] for name in names} == {"gnnplace", f"gnnplace-{VERSION}.dist-info"}


def test_the_package_that_is_imported_is_the_wheels(environment, empty):
    program = "import gnnplace, importlib.metadata; print(gnnplace.__file__); print(importlib.metadata.version('gnnplace'))"
    path, version = _checked([str(environment / "python"), "-c", program], empty).splitlines()
    assert Path(path).is_relative_to(environment.parent) and version == VERSION
    assert _gnnplace(environment, empty, "--version") == f"gnnplace {VERSION}\n"


def test_the_corpus_comes_with_it(environment, empty):
    listed = json.loads(_gnnplace(environment, empty, "graphs", "list", "--json"))
    assert [(entry["name"], entry["sha256"]) for entry in listed] == [(entry.name, entry.sha256) for entry in manifest.entries()]


def test_a_graph_of_the_corpus_is_placed_on_a_preset(environment, empty):
    problem = ("nmt-2", "--cluster", "k40-2")
    _gnnplace(environment, empty, "place", *problem, "--budget", "5s", "-o", "p.json")
    placed = json.loads(_gnnplace(environment, empty, "simulate", *problem, "--placement", "p.json", "--json"))
    assert placed["step_time_ns"] < BEST_GPU_NS
    assert [path.name for path in empty.iterdir()] == ["p.json"]


def test_planners_are_compared(environment, empty):
    compared = json.loads(_gnnplace(environment, empty, "compare", "wide-and-deep", "--cluster", "k40-2", "--json"))
    assert {"heft", "metis", "annealing"} <= {row["planner"] for row in compared["planners"]}


def test_complete_configurations_come_with_it(environment, empty):
    printed = _gnnplace(environment, empty, "train", "--settings", "published", "--seed=3", "--print_config")
    assert yaml.safe_load(printed) == yaml.safe_load((ROOT / "configs" / "hierarchical" / "published.yaml").read_text()) | {"seed": 3}


def test_a_policy_is_trained(environment, empty):
    printed = _gnnplace(environment, empty, "train", "--encoder", "gnn", *FEW)
    assert printed.startswith("nmt-2 (11,013 ops) on k40-2") and "policy, greedy" in printed
    checkpoint = empty / "runs" / "hierarchical-1" / "checkpoint.safetensors"
    _gnnplace(environment, empty, "place", "nmt-2", "--cluster", "k40-2", "--checkpoint", str(checkpoint), "-o", "p.json")
    assert json.loads((empty / "p.json").read_text())["provenance"]["encoder"] == "gnn"


def _gnnplace(environment, folder, *arguments):
    return _checked([str(environment / "gnnplace"), *arguments], folder)


def _checked(command, folder):
    """What a command prints. Nothing in its environment names the checkout."""
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH", "GNNPLACE_DATASETS")}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout
