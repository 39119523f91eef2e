"""A form of files is one line in a table: the readers, the options and the messages follow from it."""

import pytest

from gnnplace.graph import ComputationGraph, Op
from gnnplace.sources import graphs
from gnnplace.sources.graphs import Form, Reading


def read(path: str, options: Reading) -> ComputationGraph:
    return ComputationGraph.from_ops(f"{path} {dict(options.dims)}", [Op("op", "mine")], [])


@pytest.fixture(autouse=True)
def the_line(monkeypatch):
    monkeypatch.setitem(graphs.ENDINGS, ".mine", Form("network of mine", read, sized=True))


def test_a_line_in_the_table_reads_files_with_its_ending():
    assert graphs.graph("net.mine").name == "net.mine {}"
    assert graphs.graph_file("some/net.mine", Reading(dims=(("batch", 8),))).name == "some/net.mine {'batch': 8}"
    assert list(graphs.graphs(["net.mine", "dlrm"], [("net.mine:batch", 8)])) == ["net.mine", "dlrm"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "net.xml",
            Reading(dims=(("batch", 8),)),
            "--dim batch=8: net.xml is no ONNX file (*.onnx) or GraphDef (*.pb, *.pbtxt) or network of mine (*.mine), so its "
            "dimensions have sizes",
        ),
        (
            "net.mine",
            Reading(fetches=("loss:0",)),
            "--fetch loss:0: net.mine is no GraphDef (*.pb, *.pbtxt), so it says itself what its step computes",
        ),
        ("net.mine", Reading(format="pipedream", fetches=("y",)), "--fetch: a graph of pipedream has nothing to choose"),
    ],
)
def test_options_that_a_form_does_not_take_are_refused(text, options, message):
    with pytest.raises(ValueError) as refused:
        graphs.graph(text, options)
    assert str(refused.value) == message


def test_a_file_of_no_form_is_told_all_endings(tmp_path, monkeypatch):
    (tmp_path / "net.weights").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"net\.weights: unknown format; the extension must be one of \.onnx, .*, \.mine$"):
        graphs.graph("net.weights")
