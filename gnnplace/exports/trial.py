"""Trials of exports: the target's own program runs the step's module before anything is written, where that module is at hand.

A trial is a function of a target and of what it has to try. That of a graph which this process captured runs here; a command, which never
runs what a user wrote itself, has one that asks the process which did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gnnplace.exports.homes import Device
from gnnplace.frontends.origin import step_of
from gnnplace.graph import ComputationGraph

MOST_CHARACTERS = 200  # of another program's error

Say = Callable[[str], object]
Trial = Callable[..., Any]


class Fault(NamedTuple):
    """What went wrong, the path of the module in whose own code it did ("" is the model's), and whether it does so on one device, too."""

    what: str
    where: str
    always: bool = False


class Tried(NamedTuple):
    """What came of a trial: a `fault` of what was tried, or why it could not be (`untried`), or neither."""

    fault: Fault | None = None
    untried: str | None = None


NOT_AT_HAND = Tried(untried="whose module is not at hand")


def tried(graph: ComputationGraph, target: str, *given: Any) -> Any:
    """What came of the trial of a target with the step that a graph was captured from here."""
    step = step_of(graph)
    if target == "accelerate":
        from gnnplace.exports.outermost import outermost

        if step is None:
            (homes,) = given
            return outermost(homes, {}, {}), NOT_AT_HAND
        from gnnplace.exports.accelerate_trial import accelerated

        return accelerated(step, *given)
    if step is None:
        return NOT_AT_HAND
    from gnnplace.exports.pipelining_trial import pipelined

    return pipelined(step, *given)


def main_device(device_map: Mapping[str, Device]) -> Device:
    """The device to which accelerate moves the arguments of the model, and what it holds itself: chosen as accelerate does."""
    accelerators = set(device_map.values()) - {"cpu"}
    return next(iter(accelerators)) if accelerators else "cpu"
