"""Trials of exports: the target's own program runs the step's module before anything is written, where that module is
at hand.

A trial is a function of a target and of what it has to try. That of a graph which this process captured runs here; a
command, which never runs what a user wrote itself, has one that asks the process which did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gnnplace.exports.refusal import NOT_AT_HAND
from gnnplace.frontends.origin import step_of
from gnnplace.graph import ComputationGraph

Say = Callable[[str], object]
Trial = Callable[..., Any]


def tried(graph: ComputationGraph, target: str, *given: Any) -> Any:
    """What came of the trial of a target with the step that a graph was captured from here."""
    step = step_of(graph)
    if target == "accelerate":
        from gnnplace.exports.homes import outermost

        if step is None:
            (homes,) = given
            return outermost(homes, {}, {}), NOT_AT_HAND
        from gnnplace.exports.accelerate_trial import accelerated

        return accelerated(step, *given)
    if step is None:
        return NOT_AT_HAND
    from gnnplace.exports.pipelining_trial import pipelined

    return pipelined(step, *given)
