"""A limit for tests of device processes."""

import signal
from collections.abc import Iterator

import pytest
from support.processes import HUNG_S


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """Devices that wait for each other for ever fail the test instead of stopping all tests."""

    def late(*_: object) -> None:
        raise TimeoutError("the devices wait for each other")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(HUNG_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
