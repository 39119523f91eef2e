"""`gnnplace train` on many problems: the line before, a row for each family after, a file with every problem, and the exit status."""

import csv
import json

import pytest

from gnnplace import cli

FEW = [
    "--policy=improver", "--policy.width=8", "--policy.rounds=2", "--training.moves.updates=1", "--training.problems_per_update=1",
    "--training.threads=1", "--tracking=none",
]  # fmt: skip
TEST = ["--corpus.splits=[test]", "--corpus.lineages=[recommender]", "--corpus.most_ops=600", "--corpus.clusters=[k40-2]",
        "--corpus.drawn_clusters=0", "--corpus.synthetic=2"]  # fmt: skip
COLUMNS = ["graph", "cluster", "family", "ops", "bound_ns", "one_device_ns", "greedy_ns", "best_ns", "best", "placement"]


@pytest.mark.slow
def test_a_run_of_many_problems_ends_with_its_families_and_a_file(tmp_path, capsys):
    assert cli.main(["train", *FEW, *TEST, "--runs", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    with (tmp_path / "improver-1" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    number = len(rows)
    assert err.startswith(f"trains on {number} problems ({number - 2} of the corpus, 2 synthetic); places {number} in the end\n")
    assert list(rows[0]) == COLUMNS and 4 < number < 20
    families = {row["family"] for row in rows}
    assert sum(row["family"].startswith("synthetic, ") for row in rows) == 2
    assert all(sum(line.startswith(f"{family} ") for line in out.splitlines()) == 1 for family in (*families, "all"))
    assert len(out.splitlines()) < len(families) + 12 and "results.csv" in out
    for row in rows:
        assert not row["best_ns"] or int(row["bound_ns"]) <= int(row["best_ns"]) <= int(row["greedy_ns"] or row["best_ns"])


@pytest.mark.slow
def test_a_run_of_the_corpus_places_steps_of_micro_batches(tmp_path, capsys):
    small = [
        "--corpus.splits=[test]",
        "--corpus.most_ops=90",
        "--corpus.clusters=[k40-2]",
        "--corpus.drawn_clusters=0",
        "--corpus.synthetic=0",
    ]
    assert cli.main(["train", *FEW, *small, "--micro-batches", "2", "--runs", str(tmp_path), "-q"]) == 0
    documents = [json.loads(path.read_text()) for path in (tmp_path / "improver-1" / "placements").iterdir()]
    assert documents and {document["micro_batches"] for document in documents} == {2}
    assert "micro_batches: 2" in (tmp_path / "improver-1" / "config.yaml").read_text()


@pytest.mark.slow
def test_a_run_of_a_named_problem_is_of_that_alone(tmp_path, capsys):
    assert cli.main(["train", *FEW, "--problems=[[dlrm, k40-2]]", "--runs", str(tmp_path), "-q", "--json"]) == 0
    out, err = capsys.readouterr()
    assert out.count('"graph": ') == 1 and err == "" and not (tmp_path / "improver-1" / "results.csv").exists()
    assert [path.name for path in (tmp_path / "improver-1" / "placements").iterdir()] == ["dlrm.k40-2.json"]
