"""Which tests `make test` runs: all but what is marked slow or gpu, without the packages that only frameworks need.

With --core the files of SLOW are not even imported, and the packages of HEAVY can't be. So it changes nothing whether they are installed.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path

import pytest

HEAVY = frozenset({"tensorflow", "keras", "onnx", "onnxruntime", "onnxscript", "openvino", "transformers", "plotly", "selenium"})
SLOW = (
    "commands/test_measuring.py",
    "commands/test_one_command.py",
    "commands/test_train_measured.py",
    "commands/test_train_onnx.py",
    "corpus/test_enas.py",
    "corpus/test_keras_graphs.py",
    "corpus/test_openvino_graphs.py",
    "corpus/test_resnets.py",
    "corpus/test_torch_*.py",
    "corpus/test_transformer_graphs.py",
    "execution/tensorflow/*",
    "execution/test_hosts.py",
    "execution/test_measured_evaluator.py",
    "execution/test_outcomes.py",
    "execution/test_profile.py",
    "execution/torch/*",
    "frontends/onnx/*",
    "frontends/openvino/*",
    "frontends/tensorflow/*",
    "frontends/torch/test_torch_inference_capture.py",
    "report/test_browser.py",
    "training/run/test_training_device.py",
)


class CorePackages(PathFinder):
    """Finds every module of sys.path except those of HEAVY."""

    @classmethod
    def find_spec(cls, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return None if fullname.partition(".")[0] in HEAVY else super().find_spec(fullname, path, target)  # type: ignore[arg-type]


def hide_heavy_packages() -> None:
    """Neither `import` nor importlib.metadata finds them from now on."""
    found = Distribution.from_name.__func__  # type: ignore[attr-defined]

    def from_name(cls: type[Distribution], name: str) -> Distribution:
        if name in HEAVY:
            raise PackageNotFoundError(name)
        return found(cls, name)

    sys.meta_path[sys.meta_path.index(PathFinder)] = CorePackages
    Distribution.from_name = classmethod(from_name)  # type: ignore[assignment,method-assign]


def is_slow(path: Path) -> bool:
    """Whether all tests of this file are slow."""
    return any(path.match(f"tests/{pattern}") for pattern in SLOW)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--core", action="store_true", help="the tests of `make test`: not slow, no GPU, core dependencies alone")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--core"):
        hide_heavy_packages()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--core") and is_slow(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if is_slow(item.path):
            item.add_marker("slow")
    if config.getoption("--core"):
        left_out = [item for item in items if item.get_closest_marker("slow") or item.get_closest_marker("gpu")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
