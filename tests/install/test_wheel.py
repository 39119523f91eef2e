"""The wheel in an environment of its own, its commands in an empty folder: nothing of the checkout is needed."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from filelock import FileLock

from gnnplace.corpus import manifest
from gnnplace.version import VERSION

ROOT = Path(__file__).parents[2]
FOLDERS, FILES = (
    ("gnnplace", "checkpoints", "configs", "datasets"),
    ("pyproject.toml", "build_backend.py", "MANIFEST.in", "README.md", "LICENSE"),
)
BUILD = """
import json, sys
sys.path.insert(0, ".")
import build_backend
print(json.dumps(getattr(build_backend, sys.argv[1])(*map(json.loads, sys.argv[2:]))))
"""
BEST_GPU_NS = 386_637_000  # of nmt-2 on k40-2: what no planner of the portfolio falls behind
FEW = (
    "--training.updates=1", "--training.grouping.updates=1", "--training.groupings=2", "--training.placements=1", "--policy.width=8",
    "--tracking=none",
)  # fmt: skip

NET = """
import torch
from torch import nn
import gnnplace as gp


def step():
    net = nn.Sequential(*(layer for _ in range(13) for layer in (nn.Linear(1024, 1024), nn.ReLU())))
    return gp.TorchStep(net, lambda net, x, y: nn.functional.mse_loss(net(x), y), (torch.randn(64, 1024), torch.randn(64, 1024)))
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """The folder `name`, which `make` fills once for all processes that run the tests."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder(name, make):
        path = shared / f"wheel-{name}"
        with FileLock(shared / f"wheel-{name}.lock"):
            if not path.exists():
                unfinished = tmp_path_factory.mktemp(name) / name
                unfinished.mkdir()
                make(unfinished)
                unfinished.rename(path)
        return path

    return folder


@pytest.fixture(scope="module")
def sources(once, tmp_path_factory):
    """What a source distribution of this checkout holds."""

    def make(unpacked):
        copied, built = (tmp_path_factory.mktemp(name) for name in ("copied", "built"))
        for folder in FOLDERS:
            shutil.copytree(ROOT / folder, copied / folder, ignore=shutil.ignore_patterns("__pycache__"))
        for file in FILES:
            shutil.copy(ROOT / file, copied)
        _build(copied, "build_sdist", str(built))
        shutil.unpack_archive(next(built.glob("*.tar.gz")), unpacked, filter="data")

    return next(once("sources", make).iterdir())


@pytest.fixture(scope="module")
def wheel(sources, once, tmp_path_factory):
    """A wheel of the source distribution, as `pip install` makes it: of what the package needs, only what a build needs can be imported."""

    def make(built):
        path = tmp_path_factory.mktemp("path")
        absent = set(_needed(sources)) - set(json.loads(_build(sources, "get_requires_for_build_wheel", {})))
        modules = [re.split(r"[^\w-]", each)[0].replace("-", "_") for each in absent]
        assert {"torch", "ortools", "matplotlib"} <= set(modules)
        (path / "sitecustomize.py").write_text(f"import sys\nsys.modules |= dict.fromkeys({modules})\n")
        _build(sources, "build_wheel", str(built), PYTHONPATH=str(path))

    return next(once("built", make).glob("*.whl"))


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
    names = _names(wheel)
    data = {name.removeprefix("gnnplace/data/") for name in names if name.startswith("gnnplace/data/")}
    graphs = {f"datasets/graphs/{name}.arrow" for name in manifest.names()}
    clusters = {f"datasets/clusters/{path.name}" for path in (ROOT / "datasets" / "clusters").iterdir()}
    assert data == graphs | clusters | {
        "datasets/manifest.json",
        "configs/colocrl/published.yaml",
        "configs/colocrl/tuned.yaml",
        "configs/go/published.yaml",
        "configs/go/tuned.yaml",
        "configs/hierarchical/general.yaml",
        "configs/hierarchical/published.yaml",
        "configs/hierarchical/tuned.yaml",
        "configs/hsdag/published.yaml",
        "configs/hsdag/tuned.yaml",
        "configs/improver/tuned.yaml",
        "configs/placeto/published.yaml",
        "configs/placeto/tuned.yaml",
        "configs/unit-placer/tuned.yaml",
        "checkpoints/README.md",
        "checkpoints/hierarchical-gnn-held-out.safetensors",
        "checkpoints/hierarchical-gnn.safetensors",
        "checkpoints/improver-held-out.safetensors",
        "checkpoints/improver.safetensors",
    }
    modules = {
        str(path.relative_to(ROOT)) for path in (ROOT / "gnnplace").rglob("*") if path.suffix in (".py", ".json", ".typed", ".css", ".js")
    }
    code = {name for name in names if name.startswith("gnnplace/machine_code/")}
    assert {name for name in names if name.startswith("gnnplace/")} == modules | {f"gnnplace/data/{name}" for name in data} | code
    assert {name.split("/")[0] for name in names} == {"gnnplace", f"gnnplace-{VERSION}.dist-info"}
    assert {Path(name).suffix for name in code} == {".nbi"} and "gnnplace/machine_code/simulator" in {
        os.path.dirname(name) for name in code
    }


def test_a_wheel_for_other_processors_holds_no_machine_code(sources, wheel, tmp_path):
    _build(sources, "build_wheel", str(tmp_path), {"machine-code": "no"})
    assert _names(wheel) - _names(next(tmp_path.glob("*.whl"))) == {name for name in _names(wheel) if "/machine_code/" in name}


def test_what_compiles_is_of_the_versions_that_the_package_asks_for(sources):
    """Code of another version of Numba would not be read."""
    required = json.loads(_build(sources, "get_requires_for_build_wheel", {}))
    assert set(required) < set(_needed(sources)) and any(each.startswith("numba>=") for each in required)
    assert json.loads(_build(sources, "get_requires_for_build_wheel", {"machine-code": "no"})) == []
    assert json.loads(_build(sources, "get_requires_for_build_editable", {})) == []
    with pytest.raises(AssertionError, match=r"--config-settings machine-code=perhaps: must be yes or no"):
        _build(sources, "get_requires_for_build_wheel", {"machine-code": "perhaps"})


@pytest.mark.parametrize("granularity", ["op", "module", "stage"])
def test_a_first_answer_compiles_nothing(environment, empty, tmp_path, granularity):
    (empty / "net.py").write_text(NET)
    kept = tmp_path / "cache"
    asked = ("place", "net.py:step", "--cluster", "2x rtx-4090, pcie4", "--granularity", granularity, "-o", "p.json")
    assert "compiling" not in _done([str(environment / "gnnplace"), *asked], empty, XDG_CACHE_HOME=str(kept)).stderr
    assert (empty / "p.json").exists() and not list(kept.rglob("*.nbi"))


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


def _names(wheel):
    return set(zipfile.ZipFile(wheel).namelist())


def _needed(sources):
    return tomllib.loads((sources / "pyproject.toml").read_text())["project"]["dependencies"]


def _build(sources, hook, *arguments, **more):
    """What a hook of the build backend returns, as JSON, where Python keeps bytecode."""
    command = [sys.executable, "-c", BUILD, hook, *map(json.dumps, arguments)]
    return _done(command, sources, PYTHONDONTWRITEBYTECODE="", **more).stdout.splitlines()[-1]


def _gnnplace(environment, folder, *arguments):
    return _checked([str(environment / "gnnplace"), *arguments], folder)


def _checked(command, folder):
    return _done(command, folder).stdout


def _done(command, folder, **more):
    """A command that succeeds. Nothing in its environment names the checkout."""
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH", "GNNPLACE_DATASETS")}
    done = subprocess.run(command, cwd=folder, env=variables | more, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done
