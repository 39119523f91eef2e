"""Searches that get little: for tests of what is done with planners, not of how far they get."""

import pytest

from gnnplace import planners

LITTLE = {"SEARCH_EVALUATIONS": 40, "LEAST_EVALUATIONS": 100, "MOST_EVALUATIONS": 200, "EXACT_S": 0.1, "ORDER_S": 0.1}


def shorten_searches(monkeypatch: pytest.MonkeyPatch, **less: int) -> None:
    for name, value in (LITTLE | less).items():
        monkeypatch.setattr(planners, name, value)
