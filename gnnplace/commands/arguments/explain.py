"""The arguments of `gnnplace explain`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gnnplace.commands.arguments import shared
from gnnplace.commands.usage import Parser

PURPOSE = """The critical chain of a placed step, what a faster device or link would bring, and which modules would be better elsewhere.

With PART it says why that stands where it does: its time, what it waited for, and the step with it on each other device.
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments; PART may stand after options."""
    parser = Parser("explain", PURPOSE)
    shared.add_problem_arguments(parser)
    parser.add_argument("part", metavar="PART", nargs="?", help="a module such as h.0.attn, all that begin so (h.0), or an op")
    parser.add_argument("--placement", metavar="PLACEMENT", required=True, help="a placement: a JSON file")
    shared.add_report_argument(parser)
    parser.add_argument("--json", action="store_true", help="one line of JSON; everything, nothing shortened")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    chosen = parser.parse_intermixed_args(arguments)
    shared.check_report(chosen.report)
    return chosen
