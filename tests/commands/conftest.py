"""Searches get small budgets here: commands are tested for their use of planners, not for the results of searches."""

import json

import pytest
from support.fork_on_pair import CLUSTER, GRAPH, PLACEMENT
from support.short_searches import shorten_searches


@pytest.fixture(autouse=True)
def short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_searches(monkeypatch)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory of a command: graph.json, cluster.json and placement.json."""
    for name, document in (("graph", GRAPH), ("cluster", CLUSTER), ("placement", PLACEMENT)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)
    return tmp_path
