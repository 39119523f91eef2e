"""--report of several commands: a page about the step that a command placed, explained or compared."""

from __future__ import annotations

import argparse

from gnnplace.formats.placements import Provenance
from gnnplace.report.step_report import Origin


def origin(chosen: argparse.Namespace, provenance: Provenance | None = None) -> Origin:
    """What a report says of its own making."""
    return Origin(chosen.command_line, provenance)
