"""Searches that end soon: for tests of what is done with planners, not of how far searches get."""

import pytest

from gnnplace import planners

LITTLE = {"SEARCH_EVALUATIONS": 40, "LEAST_EVALUATIONS": 100, "MOST_EVALUATIONS": 200, "EXACT_S": 0.1, "ORDER_S": 0.1}


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LITTLE.items():
        monkeypatch.setattr(planners, name, value)
