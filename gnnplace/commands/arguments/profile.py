"""The arguments of `gnnplace profile`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gnnplace.choices import STEPS
from gnnplace.commands.arguments import shared
from gnnplace.commands.usage import Parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments, with a file that can be written."""
    parser = Parser(
        "profile", "Writes a cost file: the time of every op on each kind of device of the cluster, and transfers between them."
    )
    shared.add_workload_arguments(parser)
    parser.add_argument("-o", "--output", metavar="COSTS", type=shared.output, required=True, help="the JSON file to write")
    parser.add_argument("--steps", metavar="N", type=shared.positive, default=STEPS, help=f"steps behind each median; {STEPS} unless given")
    return parser.parse_args(arguments)
