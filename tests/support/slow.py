"""Parameters of tests that run on a few cases in `make test` and on all of them in `make test-all`."""

from typing import Any

import pytest


def slow(*values: Any) -> Any:
    """A parameter that only `make test-all` runs."""
    return pytest.param(*values, marks=pytest.mark.slow)
