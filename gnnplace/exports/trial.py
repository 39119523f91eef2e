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
NAMES = "names of modules"  # what a process that holds the module is asked for


def tried(graph: ComputationGraph, target: str, *request: Any) -> Any:
    """The result of a target's trial with the step that this process captured the graph from."""
    step = step_of(graph)
    if target == NAMES:
        return [] if step is None else _names(step)
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


def module_names(graph: ComputationGraph, trial: Trial | None = None) -> list[str]:
    """The paths of all modules and tensors of the step's module, and of those that the graph has."""
    from gnnplace.runtimes.homes import as_captured

    held = (graph.op_names[op] for op in range(graph.num_ops) if graph.kind[op] in ("parameter", "buffer"))
    names = [*(trial(NAMES) if trial else tried(graph, NAMES)), *graph.layer.values, *held]
    parts = (as_captured(name).split(".") for name in names)
    return list(dict.fromkeys(".".join(part[:length]) for part in parts for length in range(1, len(part) + 1)))


def _names(step: Any) -> list[str]:
    module = getattr(step, "module", None)
    if module is None:
        return []
    return [
        name
        for name, _ in (
            *module.named_modules(remove_duplicate=False),
            *module.named_parameters(),
            *module.named_buffers(),
        )
        if name
    ]
