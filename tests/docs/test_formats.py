"""docs/formats.md agrees with the code: readers read its documents, commands have its options and end with its exit codes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from support.pages import sections

from gnnplace import cli
from gnnplace.commands import usage
from gnnplace.corpus import clusters
from gnnplace.costs import roofline
from gnnplace.formats.clusters import ClusterDocument, DeviceDocument, LinkDocument, read_cluster
from gnnplace.formats.costs import read_costs
from gnnplace.formats.graphs import OpDocument, OutputDocument, read_graph
from gnnplace.formats.placements import AlternativeStep, Predicted, read_placement
from gnnplace.formats.strict_json import Document
from gnnplace.graph import PHASES
from gnnplace.portfolio import planners, portfolio
from gnnplace.simulator.simulator import simulate
from gnnplace.sources.graphs import ENDINGS

SECTIONS = {section.anchor: section for section in sections("formats.md")}
COMMANDS = {anchor: anchor.split("-")[1:] for anchor in SECTIONS if anchor.startswith("gnnplace-")}


def documents(anchor: str) -> list[bytes]:
    return [block.encode() for block in SECTIONS[anchor].blocks("json")]


def rows(anchor: str) -> list[list[str]]:
    """The cells of all tables of a section, heads left out."""
    tables = re.findall(r"^\|.*\n\|-.*\n((?:\|.*\n)+)", SECTIONS[anchor].text, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for table in tables for line in table.splitlines()]


def named(row: list[str]) -> list[str]:
    """What the first cell of a row names."""
    return re.findall(r"`([^`]+)`", row[0])


@pytest.fixture
def pair() -> tuple[Any, Any]:
    return read_graph(documents("graph")[0]), read_cluster(documents("cluster")[0])


def test_the_placement_is_read_and_takes_what_it_says(pair) -> None:
    graph, cluster = pair
    (placement,) = documents("placement")
    (result,) = simulate(roofline.problem(graph, cluster), [read_placement(placement, graph, cluster)])
    assert result.step_time_ns == json.loads(placement)["predicted"]["step_time_ns"]


def test_simulate_prints_what_the_placement_predicts(tmp_path, capsys) -> None:
    for what in ("graph", "cluster", "placement"):
        (tmp_path / f"{what}.json").write_bytes(documents(what)[0])
    files = [str(tmp_path / "graph.json"), "--cluster", str(tmp_path / "cluster.json"), "--placement", str(tmp_path / "placement.json")]
    assert cli.main(["simulate", *files, "--json"]) == usage.DONE
    assert json.loads(capsys.readouterr().out) == json.loads(documents("placement")[0])["predicted"]


def test_the_second_cluster_copies_by_itself() -> None:
    cores = read_cluster(documents("cluster")[1])
    assert cores.device_channel.tolist() == [0, 1] and cores.device_memory.tolist() == [0, 0]


def test_the_costs_are_read(pair) -> None:
    assert read_costs(documents("costs")[0], pair[0]).time_ns["gpu"].tolist() == [3000, 7400]


@pytest.mark.parametrize(
    ("anchor", "models"),
    [("graph", (OpDocument, OutputDocument)), ("cluster", (DeviceDocument, LinkDocument)), ("placement", (Predicted, AlternativeStep))],
)
def test_tables_name_every_field(anchor: str, models: tuple[type[Document], ...]) -> None:
    found = [name for row in rows(anchor) for name in named(row)]
    assert sorted(found) == sorted(name for model in models for name in model.model_fields)
    assert all("required" in row[2] for row in rows(anchor) if len(row) == 3 for name in named(row) for m in models
               if name in m.model_fields and m.model_fields[name].is_required())  # fmt: skip


def test_words_and_endings() -> None:
    assert all(f"`{word}`" in SECTIONS["graph"].text for word in PHASES)
    assert all(f"`{ending}`" in SECTIONS["the-argument-graph"].text for ending in ENDINGS)
    assert set(re.findall(r"`(\w+-\d)`", SECTIONS["the-argument-cluster"].text)) == set(clusters.names())
    assert ClusterDocument.model_fields["version"].default == 1


def test_exit_codes() -> None:
    found = {named([row[1]])[0]: int(row[0]) for row in rows("exit-codes")}
    assert found == {name: value for name, value in vars(usage).items() if name.isupper() and isinstance(value, int)}


def test_every_command_has_a_section() -> None:
    assert {words[0] for words in COMMANDS.values()} == set(cli.COMMANDS)


@pytest.mark.parametrize("anchor", COMMANDS)
def test_the_options_of_a_command(anchor: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main([*COMMANDS[anchor], "--help"])
    assert left.value.code == usage.DONE
    _, _, explained = capsys.readouterr().out.partition("options:")
    offered = {option for line in re.findall(r"^  (-.*)", explained, re.MULTILINE) for option in re.findall(r"(?:^|, )(--?[\w-]+)", line)}
    assert {option for row in rows(anchor) for option in named(row)} == offered - {"-h", "--help"}


def test_compare_prints_such_a_document(tmp_path, capsys, monkeypatch) -> None:
    every = planners.planners
    monkeypatch.setattr(planners, "planners", lambda *arguments: {"heft": every(*arguments)["heft"]})  # the others take seconds
    monkeypatch.setattr(portfolio, "MAX_CHOICES", -1)  # no exact search either
    for what in ("graph", "cluster"):
        (tmp_path / f"{what}.json").write_bytes(documents(what)[0])
    files = [str(tmp_path / "graph.json"), "--cluster", str(tmp_path / "cluster.json")]
    assert cli.main(["compare", *files, "--evaluations", "1", "--json", "-q"]) == usage.DONE
    found, shown = json.loads(capsys.readouterr().out), json.loads(documents("gnnplace-compare")[0])
    assert list(found) == list(shown) and list(found["planners"][0]) == list(shown["planners"][0])
    assert {key: found[key] for key in ("graph", "cluster", "ops", "bound_ns", "bound", "schedule")} == {
        key: shown[key] for key in ("graph", "cluster", "ops", "bound_ns", "bound", "schedule")
    }
    ignored = {"planning_ns": 0}
    (heft,) = [row for row in found["planners"] if row["planner"] == "heft"]
    assert heft | ignored == shown["planners"][0] | ignored


def test_graphs_list_prints_such_entries(capsys) -> None:
    assert cli.main(["graphs", "list", "--json"]) == usage.DONE
    found = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    (shown,) = json.loads(documents("gnnplace-graphs-list")[0])
    assert found[shown["name"]] == shown
