"""Rows are numbered as `np.unique` numbers them."""

import numpy as np
import pytest

from gnnplace.units.rows import row_numbers


@pytest.mark.parametrize("seed", range(20))
def test_numbers_are_places_among_the_distinct_rows(seed):
    generator = np.random.default_rng(seed)
    rows = generator.integers(-3, 4, size=(int(generator.integers(1, 60)), int(generator.integers(1, 5)))) * 10**12
    assert row_numbers(rows).tolist() == np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).tolist()


def test_no_rows_have_no_numbers():
    assert row_numbers(np.zeros((0, 3), dtype=np.int64)).tolist() == []
