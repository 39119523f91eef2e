"""`gnnplace graphs synthetic`, as users meet it."""

from __future__ import annotations

import json

import pytest
from support.donors import donor, expected_rows, figures

from gnnplace import cli
from gnnplace.corpus.synthetic import synthetic
from gnnplace.formats.graphs import graph_document, read_graph


@pytest.fixture
def lender(tmp_path):
    path = tmp_path / "donor.json"
    path.write_text(json.dumps(graph_document(donor())))
    return path


def test_a_synthetic_graph_is_written(lender, tmp_path, capsys):
    path = tmp_path / "drawn.json"
    options = ["--ops", "40", "--seed", "3", "--width", "5", "--donors", str(lender), "-o", str(path)]
    assert cli.main(["graphs", "synthetic", "layered", *options]) == 0
    expected = synthetic("layered", num_ops=40, seed=3, width=5, donors=[donor()])
    assert capsys.readouterr().out == f"layered-40-seed3-width5: 40 ops, {expected.num_edges} edges, sha256 {expected.sha256}\n"
    graph = read_graph(path)
    assert graph.sha256 == expected.sha256
    assert {figures(graph, op) for op in range(40)} <= expected_rows()


def test_costs_are_those_of_the_training_split_where_nobody_says_more(tmp_path):
    path = tmp_path / "drawn.json"
    assert cli.main(["graphs", "synthetic", "repeated-block", "--ops", "64", "-o", str(path)]) == 0
    assert read_graph(path).flops.sum() > 10**6


def test_an_option_of_another_family_is_refused_in_one_line(lender, tmp_path, capsys):
    options = ["--ops", "40", "--blocks", "2", "--donors", str(lender), "-o", str(tmp_path / "drawn.json")]
    assert cli.main(["graphs", "synthetic", "layered", *options]) == 4
    assert capsys.readouterr().err == "gnnplace graphs: blocks: no option of layered graphs, which have width, density\n"
    assert not (tmp_path / "drawn.json").exists()
