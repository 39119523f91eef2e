"""The provenance of published figures."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from experiments.results import provenance
from gnnplace.package_data import commit


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    return subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in ("gnnplace/graph.py", "datasets/manifest.json", "configs/a.yaml", "experiments/room/run.py", "experiments/room/README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")
    return tmp_path


@pytest.mark.parametrize(
    "name", ["gnnplace/graph.py", "gnnplace/new.py", "datasets/manifest.json", "configs/a.yaml", "experiments/room/run.py"]
)
def test_a_change_is_said_wherever_the_experiment_lies(repository: Path, name: str) -> None:
    (repository / name).write_text("after")
    assert provenance(repository / "experiments" / "room")["commit"] == git(repository, "rev-parse", "--short=12", "HEAD") + "+changes"


def test_words_and_results_are_no_change(repository: Path) -> None:
    for name in ("README.md", "results.json"):
        (repository / "experiments" / "room" / name).write_text("after")
    assert provenance(repository / "experiments" / "room")["commit"] == git(repository, "rev-parse", "--short=12", "HEAD")


def test_a_folder_of_no_repository_and_a_machine_without_git_have_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert commit(tmp_path) is None and provenance(tmp_path)["commit"] == "no commit"
    monkeypatch.setenv("PATH", "")
    assert commit(Path(__file__).parent) is None
