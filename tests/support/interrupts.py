"""SIGINT as a terminal's commands get it, whatever started the tests: a script's `&` starts processes that ignore it, and so do theirs."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt in this process, and ends those that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def interrupts() -> Iterator[None]:
    """For a test that sends SIGINT."""
    with interruptible():
        yield
