"""The examples in the docstrings of exports run."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

from gnnplace.exports.targets import TARGETS

ALSO = ("exports.targets", "runtimes.refusal", "runtimes.homes", "runtimes.runtime")


@pytest.mark.parametrize("module", sorted({target.module for target in TARGETS.values()} | {f"gnnplace.{name}" for name in ALSO}))
def test_examples_of_docstrings_run(module: str) -> None:
    found = doctest.testmod(import_module(module))
    assert found.failed == 0
