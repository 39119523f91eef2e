"""Commands are tested for what they do with planners, not for how far searches get: these are given little."""

import json

import pytest
from support.fork_on_pair import CLUSTER, GRAPH, PLACEMENT

from gnnplace import planners

LITTLE = {"SEARCH_EVALUATIONS": 40, "LEAST_EVALUATIONS": 100, "MOST_EVALUATIONS": 200, "EXACT_S": 0.1, "ORDER_S": 0.1}


@pytest.fixture(autouse=True)
def short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LITTLE.items():
        monkeypatch.setattr(planners, name, value)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory of a command: graph.json, cluster.json and placement.json."""
    for name, document in (("graph", GRAPH), ("cluster", CLUSTER), ("placement", PLACEMENT)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)
    return tmp_path
