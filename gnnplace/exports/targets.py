"""Placements as other programs read them, target by target (`table`), and what a plan promises that they don't keep."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from importlib import import_module

import numpy as np

from gnnplace.exports.homes import LATER
from gnnplace.exports.model import Model
from gnnplace.exports.table import TARGETS
from gnnplace.exports.trial import Say, Trial
from gnnplace.formats import strict_json
from gnnplace.formats.atomic import write_folder, write_text
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate

Written = str | Mapping[str, str | bytes]  # the text of a file, or the files of a folder


def exported(
    problem: Problem,
    placement: Placement,
    to: str,
    model: Model | None = None,
    say: Say = warnings.warn,
    trial: Trial | None = None,
) -> Written:
    """A placement as target `to` reads it: the text of a file, or the files of a folder by their names.

    `say` is told what could not be tried, and what of the planned time the target's program does not keep; `trial` is
    that of the module where another process has it. Raises ValueError for an unknown target, for what a target can't
    say (`UnsayableError`), and where it needs the model and has none or another one.

    >>> import gnnplace as gp
    >>> problem = gp.problem("squeezenet", cluster="k40-2")
    >>> exported(problem, gp.place(problem, "gpu"), "dot").splitlines()[0]
    'digraph "squeezenet" {'
    """
    if to not in TARGETS:
        raise ValueError(f"--to: {strict_json.unknown('target', to, tuple(TARGETS))}")
    target = TARGETS[to]
    more = (*((model,) if target.takes_model else ()), *((say, trial) if target.tries else ()))
    written: Written = getattr(import_module(target.module), to.replace("-", "_"))(problem, placement, *more)
    trains = problem.graph.phase.among(LATER).any()
    if (target.in_turn == "always" or (target.in_turn and not trains)) and (told := in_turn(problem, placement, to)):
        say(told)
    return written


def export(
    problem: Problem,
    placement: Placement,
    to: str,
    path: str | os.PathLike[str],
    model: Model | None = None,
    say: Say = warnings.warn,
    trial: Trial | None = None,
) -> None:
    """Writes `exported` to a file or a folder, whole or not at all. Raises ValueError as it does, and OSError."""
    written = exported(problem, placement, to, model, say, trial)
    if isinstance(written, str):
        write_text(path, written)
    else:
        write_folder(path, written)


def in_turn(problem: Problem, placement: Placement, program: str) -> str | None:
    """One line where the planned step counts on an overlap of devices that a program does not make.

    >>> import gnnplace as gp
    >>> problem = gp.problem("squeezenet", cluster="k40-2")
    >>> in_turn(problem, gp.place(problem, "gpu"), "it")
    >>> in_turn(problem, gp.place(problem, "heft"), "it").split(" of ")[0]
    'it runs one device after another, and 3.581 ms'
    """
    (result,) = simulate(problem, [placement], timeline=True)
    if result.timeline is None or result.step_time_ns is None:
        return None
    start, end = result.timeline.start_ns, result.timeline.end_ns
    apart = sum(
        _covered(start[on], end[on]) for on in (placement.device == device for device in range(problem.num_devices))
    )
    overlap = apart - _covered(start, end)
    planned, gained, least = (f"{ns / 1e6:,.3f} ms" for ns in (result.step_time_ns, overlap, apart))
    told = (
        f"{program} runs one device after another, and {gained} of the planned {planned} overlap: its step takes "
        f"{least} at least"
    )
    return told if overlap else None


def _covered(start_ns: np.ndarray, end_ns: np.ndarray) -> int:
    """The length of the union of intervals."""
    if not len(start_ns):
        return 0
    order = np.argsort(start_ns, kind="stable")
    reached = np.concatenate([[0], np.maximum.accumulate(end_ns[order])[:-1]])
    return int(np.maximum(0, end_ns[order] - np.maximum(start_ns[order], reached)).sum())
