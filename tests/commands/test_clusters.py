"""`gnnplace clusters`, machines in a line of text as clusters of other commands, and the examples of docs/clusters.md."""

import json
import shlex

import pytest
from support.fork_on_pair import CLUSTER, run
from support.pages import sections

from gnnplace import api, cli
from gnnplace.corpus import clusters, hardware
from gnnplace.formats.clusters import cluster_document, read_cluster
from gnnplace.sources import graphs

PAGE = {section.anchor: section for section in sections("clusters.md")}
LINES = [line for block in PAGE["a-line-of-text"].blocks("") for line in block.splitlines()]
SHOWN = [row.split("|")[1].strip(" `") for row in PAGE["a-line-of-text"].text.splitlines() if row.startswith("| `")]
TEXT = "2x rtx-4090 + l4, pcie4"


def test_list_prints_the_table_of_hardware(capsys):
    status, out, _ = run(capsys, "clusters", "list")
    assert status == 0 and all(name in out for name in ("rtx-4090", "pcie4", "nvlink4", "h100-8"))
    assert [line.split() for line in out.splitlines() if line.startswith("l4 ")] == [
        ["l4", "30.3", "60.0", "121.0", "24", "GB", "300", "pcie4", "-", "published"]
    ]
    status, out, _ = run(capsys, "clusters", "list", "--json")
    found = json.loads(out)
    assert [row["name"] for row in found["devices"]] == list(hardware.names(hardware.hardware().devices))
    assert found["presets"] == list(clusters.names()) and all(row["source"] for row in found["devices"] + found["links"])
    status, out, _ = run(capsys, "clusters", "list", "--sources")
    assert "l4: NVIDIA L4 datasheet, 2023" in out


def test_show_prints_devices_and_links(capsys):
    status, out, _ = run(capsys, "clusters", "show", TEXT)
    assert status == 0 and [line.split() for line in out.splitlines() if line.startswith("gpu:2")] == [
        ["gpu:2", "gpu", "21.9", "GiB", "30.30", "TFLOP/s", "121.00", "TFLOP/s", "300", "GB/s", "5", "µs"],
        ["gpu:2", "25,", "5", "12.5,", "10", "12.5,", "10", "-"],
    ]
    status, out, _ = run(capsys, "clusters", "show", TEXT, "--json")
    assert json.loads(out) == cluster_document(graphs.cluster(TEXT))


def test_new_writes_a_document_that_stands_for_the_text(folder, capsys):
    assert run(capsys, "clusters", "new", TEXT, "-o", "mine.json") == (0, "", "")
    assert read_cluster("mine.json") == graphs.cluster(TEXT)
    assert run(capsys, "clusters", "new", "mine.json", "-o", "mine.json", "--name", "mine") == (0, "", "")
    assert read_cluster("mine.json").name == "mine" and read_cluster("mine.json").links == graphs.cluster(TEXT).links


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("new", TEXT), 2, "required: -o/--output"),
        (("new", TEXT, "-o", "none/mine.json"), 2, "none/mine.json: there is no such folder"),
        (("show", "2x rtx-4900, pcie4"), 4, "gnnplace clusters: '2x rtx-4900, pcie4': 'rtx-4900' is no device of the table"),
        (("show", "rtx4090"), 4, "'rtx4090' is no cluster preset"),
        (("shwo",), 2, "invalid choice: 'shwo'"),
    ],
)
def test_wrong_use_is_one_line(folder, capsys, arguments, status, message):
    found, out, err = run(capsys, "clusters", *arguments)
    assert (found, out, err.count("\n")) == (status, "", 1) and message in err


def test_the_commands_of_the_page_run(folder, capsys):
    assert len(LINES) >= 6
    for line in LINES:
        program, *arguments = shlex.split(line)
        assert program == "gnnplace" and cli.main(arguments) == 0, line
    assert "rtx-4090" in capsys.readouterr().out


@pytest.mark.parametrize("text", SHOWN)
def test_the_texts_of_the_page_are_machines(text):
    assert graphs.cluster(text).num_devices >= 2


def test_the_page_names_what_presets_are():
    rows = [row.split("|")[1:3] for row in PAGE["presets-of-todays-nodes"].text.splitlines() if row.startswith("| `")]
    for name, text in ([cell.strip(" `") for cell in row] for row in rows):
        assert graphs.cluster(name).links == graphs.cluster(text).links


def test_a_problem_takes_the_text(folder, capsys):
    assert api.problem("graph.json", cluster=TEXT).num_devices == 4
    status, out, _ = run(capsys, "place", "graph.json", "--cluster", TEXT, "--planner", "heft", "--json")
    assert status == 0 and set(json.loads(out)["predicted"]["busy_ns"]) == {"cpu:0", "gpu:0", "gpu:1", "gpu:2"}


def test_a_wrong_cluster_is_told_with_all_that_is_wrong_before_the_network_is_captured(folder, capsys):
    document = json.loads(json.dumps(CLUSTER))
    document["devices"][0] |= {"memory_bytes": -1, "flops_per_s": 0}
    document["links"][1] |= {"dst": "gpu:7", "latency": 3}
    (folder / "bad.json").write_text(json.dumps(document))
    (folder / "net.py").write_text("from pathlib import Path\n\ndef step():\n    Path('captured').touch()\n")
    for place in (
        lambda: run(capsys, "place", "net.py:step", "--cluster", "bad.json")[2],
        lambda: str(_refused("net.py:step", "bad.json")),
    ):
        said = place()
        assert said.count("\n") <= 1 and not (folder / "captured").exists()
        for part in (
            "devices[0].memory_bytes: -1",
            "devices[0].flops_per_s: 0",
            "links[1].latency: unknown key",
            "links[1]: 'gpu:7' is not",
        ):
            assert part in said


def _refused(graph, cluster):
    with pytest.raises(ValueError) as refused:
        api.problem(graph, cluster=cluster)
    return refused.value
