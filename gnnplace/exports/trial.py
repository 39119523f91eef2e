"""Trials: before an export is written, the target's own program runs the step's module, if its process holds it.

A trial is a function of a target and of what the target tries. A graph that this process captured is tried here. A
command never runs a user's code itself: its trial asks the process that captured the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gnnplace.frontends.origin import step_of
from gnnplace.graph import ComputationGraph
from gnnplace.runtimes.refusal import NOT_AT_HAND

Say = Callable[[str], object]
Trial = Callable[..., Any]


def tried(graph: ComputationGraph, target: str, *request: Any) -> Any:
    """The result of a target's trial with the step that this process captured the graph from."""
    step = step_of(graph)
    if target == "accelerate":
        from gnnplace.runtimes.homes import outermost

        if step is None:
            (homes,) = request
            return outermost(homes, {}, {}), NOT_AT_HAND
        from gnnplace.exports.accelerate_trial import try_homes

        return try_homes(step, *request)
    if step is None:
        return NOT_AT_HAND
    from gnnplace.exports.pipelining_trial import try_stages

    return try_stages(step, *request)
