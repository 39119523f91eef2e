"""Settings for all tests: quiet libraries, one thread for torch, and which graphs of the corpus are rebuilt."""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines are shared: no clock in a test
settings.load_profile("patient")

pytest.register_assert_rewrite("support")
pytest_plugins = ["support.core_tests", "support.cpu_budget", "support.interrupts"]

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as in TensorFlow's servers


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-graph", action="store_true", help="rebuild every graph of the corpus (make rebuild), not only some of each builder"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--every-graph"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("every_graph")])
        items[:] = [item for item in items if not item.get_closest_marker("every_graph")]
