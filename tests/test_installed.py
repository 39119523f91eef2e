"""Entry points of other packages: used if they are installed, left out with a warning if they fail."""

import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from gnnplace import installed

PACKAGE = Path(__file__).parents[1] / "examples" / "a_package"


def install(folder: Path, name: str, code: str, entries: str) -> None:
    (folder / f"{name}.py").write_text(code)
    (folder / f"{name}-1.dist-info").mkdir()
    (folder / f"{name}-1.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (folder / f"{name}-1.dist-info" / "entry_points.txt").write_text(entries)


def test_entry_points_are_found_and_bad_ones_warned_of(tmp_path, monkeypatch):
    install(
        tmp_path,
        "some_planners",
        "def mine(): pass\n",
        "[gnnplace.planners]\nmine = some_planners:mine\ncpu = some_planners:mine\nlost = some_planners:lost\n",
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(UserWarning) as said:
        found = installed.added("gnnplace.planners", ["cpu"])
    assert [(name, value.__name__) for name, value in found.items()] == [("mine", "mine")]
    texts = sorted(str(each.message) for each in said)
    assert "'cpu'" in texts[0] and "taken" in texts[0] and "'lost'" in texts[1] and "AttributeError" in texts[1]


@pytest.mark.slow
def test_a_package_brings_a_baseline_and_a_policy(tmp_path):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    copied = shutil.copytree(PACKAGE, tmp_path / "a_package")  # pip builds where the sources lie
    subprocess.run([*pip, "--target", str(tmp_path / "site"), str(copied)], check=True)
    assert len((PACKAGE / "a_package.py").read_text().splitlines()) <= 66

    def gnnplace(*words: str) -> None:
        path = f"{tmp_path / 'site'}:{PACKAGE.parents[1]}"
        subprocess.run([sys.executable, "-m", "gnnplace", *words], check=True, cwd=tmp_path, env={"PATH": "/usr/bin", "PYTHONPATH": path})

    gnnplace("compare", "dlrm", "--cluster", "k40-2", "--evaluations", "10", "--csv", "rows.csv", "--quiet")
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert "longest-first" in set(rows.planner) and rows.step_time_ns.min() == rows.step_time_ns[0] >= rows.bound_ns[0]
    knobs = ("--training.updates=30", "--training.placements=32", "--training.optimizer.lr=0.1")
    gnnplace("train", "--policy", "table", "--problems=[[dlrm, k40-2]]", "--runs", "runs", *knobs)
    checkpoint = next((tmp_path / "runs").glob("*/checkpoint.safetensors"))
    gnnplace("place", "dlrm", "--cluster", "k40-2", "--checkpoint", str(checkpoint), "-o", "placement.json")
    assert (tmp_path / "placement.json").exists()
