"""METIS (Karypis and Kumar, 1998): parts of the graph of units with balanced work and little transfer time."""

from __future__ import annotations

from threading import Lock

import numpy as np
import pymetis
from jaxtyping import Float, Int64

from gnnplace.isolation.imports import silenced
from gnnplace.units.adjacency import Adjacency, whole

LARGEST_WEIGHT = 1e6  # METIS adds weights in 32 or 64 bits, depending on its build
_one_at_a_time = Lock()


def partition(
    joined: Adjacency,
    work: Float[np.ndarray, " units"],
    shares: Float[np.ndarray, " parts"],
    seed: int = 0,
    recursive: bool | None = None,
) -> Int64[np.ndarray, " units"]:
    """The part of each unit.

    The work of the parts approximates `shares`, which add up to 1; a part may stay empty. With `recursive`, parts come
    from repeated bisection, so that unions of them are good parts too; None leaves the choice to METIS.
    """
    if len(shares) == 1 or len(work) == 1:
        return np.zeros(len(work), dtype=np.int64)
    # METIS warns on the standard output if there are more parts than units of work
    with _one_at_a_time, silenced(1):
        assignment = pymetis.part_graph(
            len(shares),
            pymetis.CSRAdjacency(joined.ptr.tolist(), joined.neighbour.tolist()),
            vweights=whole(work, LARGEST_WEIGHT).tolist(),
            eweights=whole(joined.weight, LARGEST_WEIGHT).tolist(),
            tpwgts=shares.tolist(),
            options=pymetis.Options(seed=seed),
            recursive=recursive,
        )
    return np.array(assignment.vertex_part, dtype=np.int64)
