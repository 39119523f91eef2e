"""Results of experiments with their provenance: commit, hardware and date. Files are written atomically."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from gnnplace.formats.atomic import write_bytes

# of the whole repository, in whichever folder git is asked
SOURCES = (":/gnnplace", ":/datasets", ":/configs", ":/experiments/*.py")


def provenance(repository: Path) -> dict[str, Any]:
    """The provenance of a result: commit (and whether files differ from it), processor, cores, Python and date.

    `repository` may be any folder of the repository.
    """
    return {
        "commit": commit(repository) or "no commit",
        "hardware": {"processor": _processor(), "cores": os.cpu_count()},
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def commit(repository: Path) -> str | None:
    """The commit of a repository's folder, with "+changes" where sources
    differ from it; None without a commit, and without git.
    """
    revision = _git(repository, "rev-parse", "--short=12", "HEAD")
    changed = _git(repository, "status", "--porcelain", "--", *SOURCES)
    return revision and revision + ("+changes" if changed else "")


def save(path: Path, document: dict[str, Any]) -> None:
    """Writes a JSON document atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, (json.dumps(document) + "\n").encode())


def load(path: Path) -> dict[str, Any]:
    """The document of an earlier run, from which an experiment resumes; empty if there is none."""
    return json.loads(path.read_text()) if path.exists() else {}


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _git(repository: Path, *arguments: str) -> str | None:
    if shutil.which("git") is None:
        return None
    done = subprocess.run(["git", *arguments], cwd=repository, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
