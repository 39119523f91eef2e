"""Numbers for the rows of a table: `np.unique` with an axis sorts rows as records, which takes ten times as long."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64, Integer


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
