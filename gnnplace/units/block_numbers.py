"""The blocks of a graph, numbered through: a document or a name may give them any numbers up to 2^31.

Tables and rows of blocks are as large as the largest number, so whoever makes one takes these.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64, Integer

from gnnplace.graph import NONE, ComputationGraph


def block_numbers(graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    """The place of each op's block among those that there are, in the order of their numbers; `NONE` for an op without one."""
    return numbered(graph.block)


def numbered(label: Integer[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """The place of each label among the distinct labels in their order; `NONE` stays.

    >>> numbered(np.array([700, NONE, 3, 700])).tolist()
    [1, -1, 0, 1]
    """
    known = label != NONE
    found = np.full(len(label), NONE, dtype=np.int64)
    found[known] = np.unique(label[known], return_inverse=True)[1]
    return found
