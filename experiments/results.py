"""Results of experiments with their provenance: commit, hardware and date. Files are written atomically."""

from __future__ import annotations

import datetime
import json
import os
import platform
from pathlib import Path
from typing import Any

from gnnplace.formats.atomic import write_bytes
from gnnplace.package_data import commit


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


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
