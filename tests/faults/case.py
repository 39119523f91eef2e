"""A case: a fault at one place, and what must hold after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Case:
    """A fault of a `kind`; `broken(folder)` lets it happen in an empty folder and says in a line what did not hold, None if all did."""

    kind: str
    name: str
    broken: Callable[[Path], str | None]
