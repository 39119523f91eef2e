"""Placements as other programs read them, target by target (`table`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module

from gnnplace.exports.model import Model
from gnnplace.exports.table import TARGETS
from gnnplace.formats import strict_json
from gnnplace.formats.atomic import write_folder, write_text
from gnnplace.placement import Placement
from gnnplace.problems import Problem

Written = str | Mapping[str, str | bytes]  # the text of a file, or the files of a folder


def exported(problem: Problem, placement: Placement, to: str, model: Model | None = None) -> Written:
    """A placement as target `to` reads it: the text of a file, or the files of a folder by their names.

    Raises ValueError for an unknown target, for what a target can't say (`UnsayableError`), and where it needs the model and has none or
    another one.

    >>> import gnnplace as gp
    >>> problem = gp.problem("squeezenet", cluster="k40-2")
    >>> exported(problem, gp.place(problem, "gpu"), "dot").splitlines()[0]
    'digraph "squeezenet" {'
    """
    if to not in TARGETS:
        raise ValueError(f"--to: {strict_json.unknown('target', to, tuple(TARGETS))}")
    function = getattr(import_module(TARGETS[to].module), to.replace("-", "_"))
    written: Written = function(problem, placement, model) if TARGETS[to].takes_model else function(problem, placement)
    return written


def export(problem: Problem, placement: Placement, to: str, path: str | os.PathLike[str], model: Model | None = None) -> None:
    """Writes `exported` to a file or a folder, whole or not at all. Raises ValueError as it does, and OSError."""
    written = exported(problem, placement, to, model)
    if isinstance(written, str):
        write_text(path, written)
    else:
        write_folder(path, written)
