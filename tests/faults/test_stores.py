"""A sample of what `make reliability` does to MLflow's store (tests/faults/stores.py)."""

import pytest
from faults import stores
from faults.test_faults import broken

EVERY = 14  # a signal, a store that is half made, damage, something else in its place


@pytest.mark.slow
def test_a_store_that_is_cut_off_or_damaged_is_never_in_the_way(tmp_path):
    assert broken(list(stores.cases())[::EVERY], tmp_path) == []
