"""The table of targets, which the command line and the API read: functions from a problem and a placement to the text of a file."""

from __future__ import annotations

import os
from importlib import import_module
from typing import NamedTuple

from gnnplace.formats import strict_json
from gnnplace.formats.atomic import write_text
from gnnplace.placement import Placement
from gnnplace.problems import Problem


class Target(NamedTuple):
    """Where the function is, and what it writes."""

    module: str
    purpose: str


TARGETS = {
    "accelerate": Target("gnnplace.exports.device_map", "the device_map of accelerate and transformers, module by module, as JSON"),
    "chrome-trace": Target("gnnplace.exports.chrome_trace", "the simulated step, for ui.perfetto.dev or chrome://tracing"),
    "dot": Target("gnnplace.exports.graphs", "the graph for Graphviz, coloured by device"),
    "graphml": Target("gnnplace.exports.graphs", "the graph for networkx, yEd or Gephi, with device, module, start and end of every op"),
}


def exported(problem: Problem, placement: Placement, to: str) -> str:
    """The text of a placement as target `to` reads it. Raises ValueError for an unknown target, and for what a target can't say.

    >>> import gnnplace as gp
    >>> problem = gp.problem("squeezenet", cluster="k40-2")
    >>> exported(problem, gp.place(problem, "gpu"), "dot").splitlines()[0]
    'digraph "squeezenet" {'
    """
    if to not in TARGETS:
        raise ValueError(f"--to: {strict_json.unknown('target', to, tuple(TARGETS))}")
    text: str = getattr(import_module(TARGETS[to].module), to.replace("-", "_"))(problem, placement)
    return text


def export(problem: Problem, placement: Placement, to: str, path: str | os.PathLike[str]) -> None:
    """Writes `exported` to a file, whole or not at all. Raises ValueError as it does, and OSError."""
    write_text(path, exported(problem, placement, to))
