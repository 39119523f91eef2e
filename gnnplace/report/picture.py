"""What pictures share: the formats of their files, the colours of phases, and bars over time."""

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

from gnnplace.formats import atomic
from gnnplace.graph import NONE, PHASES, ComputationGraph

FORMATS: dict[str, dict[str, None]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # and what not to write of now


class Phase(NamedTuple):
    """A phase that a graph has, its colour and its ops."""

    name: str
    colour: str
    ops: Bool[np.ndarray, " ops"]


def coloured_phases(graph: ComputationGraph) -> list[Phase]:
    """The phases that ops of a graph have, those without one last; a phase has the same colour in every picture."""
    found = [Phase(name, f"C{number}", graph.phase.among([name])) for number, name in enumerate(PHASES)]
    return [phase for phase in (*found, Phase("no phase", "lightgrey", graph.phase.index == NONE)) if phase.ops.any()]


def name_colours(axes: Axes, colours: Sequence[tuple[str, str]]) -> None:
    """A legend above the axes: colours and what they mean."""
    handles = [Patch(color=colour, label=name) for colour, name in colours]
    axes.legend(handles=handles, fontsize=7, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(handles), frameon=False)


def bars(start_ns: np.ndarray, end_ns: np.ndarray, row: np.ndarray, low: float, high: float) -> list[np.ndarray]:
    """The corners `[4, 2]` of a rectangle for each entry, from start to end in ms, between `low` and `high` of its row's line."""
    left, right = start_ns / 1e6, end_ns / 1e6
    corners = [(left, row + low), (right, row + low), (right, row + high), (left, row + high)]
    return list(np.stack([np.stack(corner, axis=1) for corner in corners], axis=1))


def check_ending(path: str | os.PathLike[str]) -> None:
    """Raises ValueError where the ending of `path` is not one of `FORMATS`."""
    if Path(path).suffix not in FORMATS:
        raise ValueError(f"{path}: the ending is none of {', '.join(FORMATS)}")


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Writes a figure, atomically; the same figure gives the same bytes. Raises OSError where the file can't be written."""
    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "gnnplace"}):
        figure.savefig(buffer, format=Path(path).suffix[1:], dpi=110, metadata=FORMATS[Path(path).suffix])
    atomic.write_bytes(path, buffer.getvalue())
