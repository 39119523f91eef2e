"""--report of several commands: a page about the step that a command placed, explained or compared."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence

from gnnplace.commands import inputs
from gnnplace.formats.placements import Provenance
from gnnplace.report import page
from gnnplace.report.step_report import Origin


def add_report_argument(parser: argparse.ArgumentParser) -> None:
    """--report."""
    explained = "write a page about the step, one HTML file: timeline, memory, devices by module, critical chain (needs plotly)"
    parser.add_argument("--report", metavar="FILE.html", type=inputs.output, help=explained)


def check(path: str | None) -> None:
    """Raises ValueError where there can be no report at `path`: said before the work."""
    if path is not None:
        page.check(path)


def origin(command: str, arguments: Sequence[str], provenance: Provenance | None = None) -> Origin:
    """What a report says of its own making."""
    return Origin(shlex.join(["gnnplace", command, *arguments]), provenance)
