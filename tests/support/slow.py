"""Parameters of tests that run on a few cases in `make test`, on more in `make test-all`, on all in `make thorough`."""

from collections.abc import Sequence
from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """A parameter that `make test` leaves out."""
    return pytest.param(*values, marks=pytest.mark.slow)


def thorough(*values: Any) -> Any:
    """A parameter that only `make thorough` runs."""
    return pytest.param(*values, marks=pytest.mark.thorough)


def parts(seeds: Sequence[int], number: int) -> list[Any]:
    """The seeds in so many parts, each every `number`-th of them. The first part is slow, the others are thorough."""
    return [slow(seeds[::number]), *(thorough(seeds[part::number]) for part in range(1, number))]
