"""Folders of runs: each process gets one of its own, and what a killed process left is taken by the next."""

import os
from multiprocessing import get_context
from pathlib import Path

import pytest
from support.processes import LATE_S

from gnnplace.training.run import folder as run_folder
from gnnplace.training.run.folder import RunFolder


def test_runs_that_begin_at_once_have_a_folder_each(tmp_path, monkeypatch):
    fork, exists = get_context("fork"), Path.exists
    together, queue = fork.Barrier(4), fork.SimpleQueue()

    def all_look_before_any_makes_it(path):
        found = exists(path)
        if path.name == "run-1" and not together.broken and not found:
            together.wait(LATE_S)
        return found

    def create():
        monkeypatch.setattr(Path, "exists", all_look_before_any_makes_it)
        folder = run_folder.create(tmp_path, "run", "seed: 0\n")
        queue.put(folder.path.name)

    processes = [fork.Process(target=create) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    assert sorted(queue.get() for _ in processes) == [f"run-{number}" for number in range(1, 5)]
    assert all((path / "config.yaml").read_text() == "seed: 0\n" for path in tmp_path.iterdir())


@pytest.mark.parametrize("left", [(), ("lock",), ("lock", "placements/"), ("lock", "placements/", ".config.yaml.0123abcd.tmp")])
def test_what_a_run_left_that_was_killed_before_it_had_a_configuration_is_taken(tmp_path, left):
    (tmp_path / "run-1").mkdir()
    for name in left:
        (tmp_path / "run-1" / name).mkdir() if name.endswith("/") else (tmp_path / "run-1" / name).touch()
    with pytest.raises(ValueError, match=r"run-1: no run to go on with: there is no config\.yaml; a new run takes what one left"):
        run_folder.open_run(tmp_path / "run-1")
    assert run_folder.create(tmp_path, "run", "seed: 0\n").path.name == "run-1"
    assert sorted(os.listdir(tmp_path / "run-1")) == ["config.yaml", "lock", "placements"]


@pytest.mark.parametrize("theirs", ["notes.txt", "placements/a.json", "checkpoint.safetensors"])
def test_what_holds_something_else_is_not_taken(tmp_path, theirs):
    path = tmp_path / "run-1" / theirs
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    assert run_folder.create(tmp_path, "run", "").path.name == "run-2" and path.read_text() == "mine"


def test_what_another_process_is_about_to_use_is_not_taken(tmp_path):
    (tmp_path / "run-1").mkdir()
    begun = RunFolder(tmp_path / "run-1")
    assert run_folder.create(tmp_path, "run", "").path.name == "run-2"
    begun.discard()
    assert run_folder.create(tmp_path, "run", "").path.name == "run-1"


def test_a_folder_whose_configuration_can_not_be_written_is_not_left(tmp_path, monkeypatch):
    def full(path, text):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(run_folder.atomic, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        run_folder.create(tmp_path, "run", "")
    assert os.listdir(tmp_path) == []
