"""Settings for all tests: quiet libraries, the threads that torch begins with, and what only `make thorough` runs."""

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines are shared: no clock in a test
settings.load_profile("patient")

pytest.register_assert_rewrite("support")
pytest_plugins = ["support.core_tests", "support.cpu_budget", "support.interrupts"]

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as in TensorFlow's servers


@pytest.fixture(scope="session", autouse=True)
def threads() -> int | None:
    """How many threads torch has before the first test; None without torch."""
    return sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None


@pytest.fixture(autouse=True)
def same_threads(threads: int | None) -> Iterator[None]:
    """A training in the process of the tests sets torch's threads, and their number rounds the sums of the tests that follow."""
    yield
    if threads is not None:
        sys.modules["torch"].set_num_threads(threads)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thorough", action="store_true", help="also what is marked thorough: all seeds, every graph of the corpus (make thorough)"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--thorough"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("thorough")])
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]
