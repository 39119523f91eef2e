"""The model that a problem's graph was read from, for targets that write it anew or need to know all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gnnplace.graph import ComputationGraph


class Model(NamedTuple):
    """GRAPH as commands take it (a file, FILE.py:FUNCTION, a name of the
    corpus), with the sizes and fetches that it was read with.
    """

    path: str
    dims: Mapping[str, int] = {}
    fetches: tuple[str, ...] = ()


def check_same(read: ComputationGraph, placed: ComputationGraph, model: Model) -> None:
    """Raises ValueError where the graph read from the model is not the one that was placed."""
    if read.sha256 != placed.sha256:
        raise ValueError(
            f"{model.path}: its graph has the checksum {read.sha256[:12]}..., that of the placed one is "
            f"{placed.sha256[:12]}..."
        )
