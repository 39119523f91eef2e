"""The arguments of `gnnplace simulate`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gnnplace.choices import SCHEDULES
from gnnplace.commands.arguments import shared
from gnnplace.commands.usage import Parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments."""
    parser = Parser(
        "simulate", "What a placement takes: step time and memory, beside the bound. An infeasible placement is a result, with its reason."
    )
    shared.add_problem_arguments(parser)
    parser.add_argument("--placement", metavar="PLACEMENT", required=True, help="a placement: a JSON file")
    parser.add_argument("--schedule", choices=SCHEDULES, help="the schedule, another than the placement's own")
    parser.add_argument(
        "--picture", metavar="FILE", type=shared.output, help="draw what each device runs and sends over time: .png, .svg or .pdf"
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    return parser.parse_args(arguments)
