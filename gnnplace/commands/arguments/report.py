"""The arguments of `gnnplace report`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from gnnplace.commands.arguments import shared
from gnnplace.commands.usage import Parser

PURPOSE = """A page about trainings. Runs that differ in their seed alone are one method, whose curves have intervals of 95 %.

The heuristics of up to four problems are asked for their placements; other problems have their bound alone.
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments, with a page that can be written."""
    parser = Parser("report", PURPOSE)
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="the folder of a run of gnnplace train")
    parser.add_argument("-o", "--output", metavar="FILE.html", type=shared.output, required=True, help="the page to write")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    chosen = parser.parse_args(arguments)
    shared.check_report(chosen.output)
    return chosen
