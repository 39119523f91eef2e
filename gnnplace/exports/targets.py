"""Placements as other programs read them, target by target (`table`)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from importlib import import_module

from gnnplace.exports.homes import LATER
from gnnplace.exports.in_turn import in_turn
from gnnplace.exports.model import Model
from gnnplace.exports.table import TARGETS
from gnnplace.exports.trial import Say, Trial
from gnnplace.formats import strict_json
from gnnplace.formats.atomic import write_folder, write_text
from gnnplace.placement import Placement
from gnnplace.problems import Problem

Written = str | Mapping[str, str | bytes]  # the text of a file, or the files of a folder


def exported(
    problem: Problem, placement: Placement, to: str, model: Model | None = None, say: Say = warnings.warn, trial: Trial | None = None
) -> Written:
    """A placement as target `to` reads it: the text of a file, or the files of a folder by their names.

    `say` is told what could not be tried, and what of the planned time the target's program does not keep; `trial` is that of the module
    where another process has it. Raises ValueError for an unknown target, for what a target can't say (`UnsayableError`), and where it
    needs the model and has none or another one.

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
