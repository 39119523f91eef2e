"""Searches from many starts: each has a short one, the better half goes on, until one start has all that is left.

Successive halving (Karnin, Koren and Somekh, ICML 2013; Jamieson and Talwalkar, AISTATS 2016). It is unknown which
start leads to the best step; a start that is behind may have more room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from gnnplace.baselines.searching.budget import Budget
from gnnplace.portfolio.candidates import BY_SCORE, Candidate

LAST = 2  # the budget of the last round, in those of the rounds before
Searched = Callable[[Candidate, Budget], Candidate]  # the result of a search from a candidate, never worse


def halved(starts: Sequence[Candidate], budget: Budget, search: Searched) -> Candidate:
    """The best result of searches from at least one start.

    Rounds have equal parts of the budget, the last one twice as much; the starts of a round share its part equally.
    """
    going = list(starts)
    parts = (len(going) - 1).bit_length() + LAST
    while len(going) > 1:
        part = budget.left(1 / parts)
        going = [search(each, part.left(1 / (len(going) - place))) for place, each in enumerate(going)]
        going, parts = sorted(going, key=BY_SCORE)[: ceil(len(going) / 2)], parts - 1
    return search(going[0], budget)
