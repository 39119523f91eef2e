"""Searches that get little: for tests of what is done with planners, not of how far they get."""

import pytest

from gnnplace.baselines.data_parallel import layer_shares
from gnnplace.portfolio import planners, portfolio

LITTLE = {
    "SEARCH_EVALUATIONS": 40,
    "LEAST_EVALUATIONS": 100,
    "MOST_EVALUATIONS": 200,
    "EXACT_S": 0.1,
    "ORDER_S": 0.1,
    "ROUNDS": 1,
    "MOST": 4,
}


def shorten_searches(monkeypatch: pytest.MonkeyPatch, **less: int) -> None:
    for name, value in (LITTLE | less).items():
        for module in (planners, portfolio, layer_shares):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
