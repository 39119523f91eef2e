"""Files that come with the package: configurations (`configs`), the corpus and presets (`datasets`), trained weights.

A wheel holds them inside the package (see build_backend.py). In a checkout, an editable install included, their folders
are beside the package.
"""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path
from typing import Literal

INSTALLED = Path(str(files("gnnplace"))) / "data"
CHECKOUT = Path(__file__).resolve().parents[1]

# the sources on which results depend, from the root of the repository
SOURCES = (":/gnnplace", ":/datasets", ":/configs", ":/experiments/*.py")


def folder(name: Literal["checkpoints", "configs", "datasets"]) -> Path:
    """The folder of that name."""
    return (INSTALLED if INSTALLED.is_dir() else CHECKOUT) / name


def is_checkout() -> bool:
    """Whether the package is used from a checkout of its own repository."""
    return not INSTALLED.is_dir() and (CHECKOUT / ".git").exists()


def commit(repository: Path) -> str | None:
    """The commit of a repository, by any of its folders, with "+changes" if sources differ from it.

    None if there is no commit, or no git.
    """
    revision = _git(repository, "rev-parse", "--short=12", "HEAD")
    changed = _git(repository, "status", "--porcelain", "--", *SOURCES)
    return revision and revision + ("+changes" if changed else "")


def _git(repository: Path, *arguments: str) -> str | None:
    import subprocess  # imported late: only runs and experiments ask for a commit

    if shutil.which("git") is None:
        return None
    completed = subprocess.run(["git", *arguments], cwd=repository, capture_output=True, text=True, check=False)
    return completed.stdout.strip() if completed.returncode == 0 else None
