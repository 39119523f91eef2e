"""Commands are tested for what they do with planners, not for how far searches get: these are given little."""

import pytest

from gnnplace import build

LITTLE = {"SEARCH_EVALUATIONS": 40, "LEAST_EVALUATIONS": 100, "MOST_EVALUATIONS": 200, "EXACT_S": 0.1, "ORDER_S": 0.1}


@pytest.fixture(autouse=True)
def short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LITTLE.items():
        monkeypatch.setattr(build, name, value)
