"""One process that forks the TensorFlow servers of all tests of a file."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def template() -> Iterator[Any]:
    from gnnplace.execution.tensorflow.servers import Template

    shared = Template()
    yield shared
    shared.close()
