"""Shared parts of pictures: file formats, colours of phases, bars over time."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Text

from gnnplace.formats import atomic
from gnnplace.graph import NONE, PHASES, ComputationGraph
from gnnplace.printable import printable

FORMATS: dict[str, dict[str, None]] = {
    ".png": {},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}  # metadata to omit, so that bytes are reproducible
MOST_OF_A_NAME = 60  # characters


class Phase(NamedTuple):
    """A phase of a graph, its colour and its ops (a mask)."""

    name: str
    colour: str
    ops: Bool[np.ndarray, " ops"]


def coloured_phases(graph: ComputationGraph) -> list[Phase]:
    """The phases that occur in a graph; ops without a phase come last. A phase has the same colour in every picture."""
    found = [Phase(name, f"C{number}", graph.phase.among([name])) for number, name in enumerate(PHASES)]
    return [phase for phase in (*found, Phase("no phase", "lightgrey", graph.phase.index == NONE)) if phase.ops.any()]


def label(name: str) -> str:
    """A name as a picture shows it: one line, not too long."""
    return printable(name, MOST_OF_A_NAME)


def name_colours(axes: Axes, colours: Sequence[tuple[str, str]]) -> None:
    """Adds a legend above the axes, from pairs of a colour and its name."""
    handles = [Patch(color=colour, label=name) for colour, name in colours]
    axes.legend(handles=handles, fontsize=7, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(handles), frameon=False)


def bars(start_ns: np.ndarray, end_ns: np.ndarray, row: np.ndarray, low: float, high: float) -> list[np.ndarray]:
    """The corners `[4, 2]` of one rectangle for each entry: from start to end in ms, from `row + low` to `row + high`."""
    left, right = start_ns / 1e6, end_ns / 1e6
    corners = [(left, row + low), (right, row + low), (right, row + high), (left, row + high)]
    return list(np.stack([np.stack(corner, axis=1) for corner in corners], axis=1))


def check_ending(path: str | os.PathLike[str]) -> None:
    """Raises ValueError if the extension of `path` is not in `FORMATS`."""
    if Path(path).suffix not in FORMATS:
        raise ValueError(f"{path}: the ending is none of {', '.join(FORMATS)}")


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Writes a figure atomically; equal figures give equal bytes. `$x$` in names is no formula, powers of ten are. Raises OSError."""
    buffer = io.BytesIO()
    axes = [axis for each in figure.axes for axis in (each.xaxis, each.yaxis) if axis.get_scale() == "log"]
    powers = {label for axis in axes for label in axis.get_ticklabels(which="both")}
    for text in figure.findobj(Text):
        text.set_parse_math(text in powers)  # a '$' in a name is a '$'
    with rc_context({"svg.hashsalt": "gnnplace"}):
        figure.savefig(buffer, format=Path(path).suffix[1:], dpi=110, metadata=FORMATS[Path(path).suffix])
    atomic.write_bytes(path, buffer.getvalue())
