"""What makes the numbers of a graph wrong or doubtful, in one place for plans, documents, reports and commands.

A new caveat is a function of the graph in `_CAVEATS`.
"""

from __future__ import annotations

from collections.abc import Callable

from gnnplace.graph import ComputationGraph

MOST_KINDS = 20  # in a text


def caveats(graph: ComputationGraph) -> list[str]:
    """The warnings about a graph's numbers, one text each.

    >>> from gnnplace.graph import Op
    >>> caveats(ComputationGraph.from_ops("net", [Op("x", "Det", canonical_kind="other")], []))
    ['no rule counts the flops of 1 op: Det (1); unless measured, they take the time of their bytes alone']
    """
    return [text for caveat in _CAVEATS if (text := caveat(graph)) is not None]


def _uncounted(graph: ComputationGraph) -> str | None:
    """Kinds without a rule for their flops."""
    if not graph.uncounted:
        return None
    total = sum(graph.uncounted.values())
    kinds = [f"{kind} ({number})" for kind, number in graph.uncounted.items()]
    more = f" and {len(kinds) - MOST_KINDS} more kinds" if len(kinds) > MOST_KINDS else ""
    return (
        f"no rule counts the flops of {total} op{'s' * (total > 1)}: {', '.join(kinds[:MOST_KINDS])}{more}; unless "
        "measured, they take the time of their bytes alone"
    )


_CAVEATS: tuple[Callable[[ComputationGraph], str | None], ...] = (_uncounted,)
