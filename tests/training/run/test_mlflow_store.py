"""MLflow's store of a folder of runs: whole or not there, made once, and where it is damaged named with the cure and left as it is."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.mlflow_stores import DAMAGED, Ended, at_statement, half_made, whole

from gnnplace.training.run import mlflow_store

CURE = "move it away, and the next training makes a new one, or say --tracking none"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return whole(tmp_path_factory.mktemp("runs"))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_new_store_is_whole_at_once_and_is_used_as_it_is(tmp_path):
    client = mlflow_store.opened(tmp_path)
    group = mlflow_store.experiment(client, tmp_path)
    assert names(tmp_path) == ["mlflow.db"] and mlflow_store.experiment(client, tmp_path) == group
    found = client.get_experiment(group)
    assert found.name == "gnnplace" and mlflow_store.local(found.artifact_location) == tmp_path / "artifacts"
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    before = (tmp_path / "mlflow.db").read_bytes()
    mlflow_store.check(tmp_path)
    mlflow_store.opened(tmp_path)
    assert (tmp_path / "mlflow.db").read_bytes() == before and names(tmp_path) == ["mlflow.db"]


@pytest.mark.slow
def test_two_folders_have_a_store_each(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        client = mlflow_store.opened(tmp_path / name)
        (found,) = client.search_experiments(filter_string="name = 'gnnplace'")
        assert mlflow_store.local(found.artifact_location) == tmp_path / name / "artifacts"


@pytest.mark.slow
def test_what_ends_while_a_store_is_made_leaves_nothing(tmp_path):
    def end():
        raise Ended

    with at_statement(0) as count:
        whole(tmp_path)
    for at in range(1, count[0] + 1, count[0] // 3):
        with at_statement(at, end), pytest.raises(Ended):
            mlflow_store.opened(tmp_path)
        assert names(tmp_path) == []
    mlflow_store.opened(tmp_path)
    assert names(tmp_path) == ["mlflow.db"]


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_store_is_named_with_its_cure_and_stays_as_it_is(kind, store, tmp_path):
    damage, words = DAMAGED[kind]
    path = tmp_path / "mlflow.db"
    damage(path, store)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(OSError, match="MLflow") as error:
        mlflow_store.opened(tmp_path)
    assert error.value.filename == str(path) and "\n" not in error.value.strerror
    assert words in error.value.strerror and error.value.strerror.endswith(CURE)
    assert names(tmp_path) == ["mlflow.db"] and before == (path.read_bytes() if path.is_file() else None)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9, 1.0])
def test_a_store_that_mlflow_made_in_place_is_named_where_it_is_half_made(share, tmp_path):
    with at_statement(0) as count:
        whole(tmp_path)
    half_made(tmp_path / "mlflow.db", int(share * count[0] * 0.95))
    with pytest.raises(OSError, match=r"MLflow's store is half-made: move it away"):
        mlflow_store.opened(tmp_path)


@pytest.mark.parametrize("name", ["a?b", "a#b", "a%20b", b"\xff".decode(errors="surrogateescape")])
def test_a_folder_that_mlflow_would_look_for_elsewhere_is_refused(name, tmp_path):
    (tmp_path / name).mkdir()
    with pytest.raises(OSError, match="MLflow has no address for such a name"):
        mlflow_store.opened(tmp_path / name)
    assert names(tmp_path) == [name] and names(tmp_path / name) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a b", "a%b", "ü", "%(here)s", "a\nb", "it's", "[x]"])
def test_other_names_are_found_by_their_address(name, tmp_path):
    (tmp_path / name).mkdir()
    client = mlflow_store.opened(tmp_path / name)
    run = client.create_run(mlflow_store.experiment(client, tmp_path / name))
    assert Path(mlflow_store.local(run.info.artifact_uri)).is_relative_to(tmp_path / name)
    assert names(tmp_path) == [name] and names(tmp_path / name) == ["mlflow.db"]
