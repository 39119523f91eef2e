"""Consecutive numbers for labels, so that they can be indices of a table.

A document or a name may give blocks any numbers up to 2^31. `np.unique` with an axis would sort rows as records, which
takes ten times as long.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64, Integer

from gnnplace.graph import NONE, ComputationGraph


def row_numbers(rows: Integer[np.ndarray, "rows columns"]) -> Int64[np.ndarray, " rows"]:
    """The place of each row among the distinct rows in lexicographic order.

    >>> row_numbers(np.array([[2, 1], [1, 5], [2, 1], [1, 3]])).tolist()
    [2, 1, 2, 0]
    """
    number = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        place = np.unique(column, return_inverse=True)[1]
        number = np.unique(number * (len(rows) + 1) + place, return_inverse=True)[1]
    return number


def block_numbers(graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    """The place of each op's block among all blocks in ascending order; `NONE` for an op without a block."""
    return numbered(graph.block)


def numbered(label: Integer[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """The place of each label among the distinct labels in their order; `NONE` stays.

    >>> numbered(np.array([700, NONE, 3, 700])).tolist()
    [1, -1, 0, 1]
    """
    labelled = label != NONE
    number = np.full(len(label), NONE, dtype=np.int64)
    number[labelled] = np.unique(label[labelled], return_inverse=True)[1]
    return number
