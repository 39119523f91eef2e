"""The examples in the docstrings of exports run."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

from gnnplace.exports.targets import TARGETS

ALSO = ("targets", "refusal", "homes")


@pytest.mark.parametrize("module", sorted({target.module for target in TARGETS.values()} | {f"gnnplace.exports.{name}" for name in ALSO}))
def test_examples_of_docstrings_run(module: str) -> None:
    found = doctest.testmod(import_module(module))
    assert found.failed == 0
