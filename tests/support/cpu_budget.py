"""The budget of a test that is not marked slow: 2 s of CPU time on a common machine.

CPU time is counted, not wall time, so that other work beside changes little: that of this process with its threads and of the children
that it waited for. What numba compiles does not count: only the first run of a fresh checkout compiles. A test fails at SLACK times the
budget, because machines differ, and only with --cpu-budget: collecting all of the core imports PyTorch, Lightning and MLflow, which
the first test of a single file would pay for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from os import times  # a test may put a clock of its own in its place

import pytest
from numba.core import event

BUDGET_S = 2.0
SLACK = 5.0
SPENT = pytest.StashKey[float]()


class CompileTimer(event.Listener):
    """Adds up the time of numba's compilations; those within others count once."""

    def __init__(self) -> None:
        self.seconds, self._open, self._since = 0.0, 0, 0.0

    def on_start(self, event: event.Event) -> None:
        self._open += 1
        if self._open == 1:
            self._since = time.thread_time()

    def on_end(self, event: event.Event) -> None:
        self._open -= 1
        if self._open == 0:
            self.seconds += time.thread_time() - self._since


COMPILED = CompileTimer()
event.register("numba:compile", COMPILED)


def spent(before: os.times_result, after: os.times_result) -> float:
    """The CPU seconds between two looks at the clock. A child that began earlier counts for at most the wall time."""
    own = after.user + after.system - before.user - before.system
    children = after.children_user + after.children_system - before.children_user - before.children_system
    return own + min(children, after.elapsed - before.elapsed)


def _measured(item: pytest.Item) -> Generator[None, object, object]:
    before, compiled = times(), COMPILED.seconds
    try:
        return (yield)
    finally:
        cpu_s = spent(before, times()) - (COMPILED.seconds - compiled)
        item.stash[SPENT] = item.stash.get(SPENT, 0.0) + cpu_s


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-budget", action="store_true", help="fail tests over their budget, as `make test` does")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[SPENT] = 0.0
    return (yield from _measured(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    result = yield from _measured(item)
    cpu_s = item.stash[SPENT]
    if item.config.getoption("--cpu-budget") and cpu_s > BUDGET_S * SLACK and not item.get_closest_marker("slow"):
        pytest.fail(
            f"{cpu_s:.1f} s of CPU: a test that is not marked slow has {BUDGET_S:g} s (and fails at {BUDGET_S * SLACK:g}); "
            "give it a smaller problem, or mark it @pytest.mark.slow and keep the core of its promise in a smaller test",
            pytrace=False,
        )
    return result
