"""The corpus of damaged and hostile files: `cases()` makes all of them, each with the line that it has to end in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.hostile import checkpoint_cases, file_cases, finds, json_cases, model_cases, yaml_cases
from tests.hostile.command_case import HostileFile

HERE = Path(__file__).parent


def cases() -> Iterator[HostileFile]:
    """All cases; those of a package that is missing are left out."""
    for module in (json_cases, file_cases, yaml_cases, checkpoint_cases, model_cases, finds):
        yield from module.cases()
