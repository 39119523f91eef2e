"""Files that come with the package: configurations (`configs`), the corpus with its presets (`datasets`), trained
weights (`checkpoints`).

A wheel carries them inside the package (see build_backend.py). In a checkout, an editable install included, they lie
beside it.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Literal

INSTALLED = Path(str(files("gnnplace"))) / "data"
CHECKOUT = Path(__file__).resolve().parents[1]


def is_checkout() -> bool:
    """Whether the package is used from a checkout of its own repository."""
    return not INSTALLED.is_dir() and (CHECKOUT / ".git").exists()


def folder(name: Literal["checkpoints", "configs", "datasets"]) -> Path:
    """The folder of that name."""
    return (INSTALLED if INSTALLED.is_dir() else CHECKOUT) / name
