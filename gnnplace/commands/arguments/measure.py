"""The arguments of `gnnplace measure`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import get_args

from gnnplace.choices import SCHEDULES, ProtocolName, SearchName
from gnnplace.commands.arguments import shared
from gnnplace.commands.usage import Parser

PURPOSE = """Times a placed step on real devices, in turns with a reference; its losses and variables must equal the unplaced step's.

With --search the placement is first improved by real steps.
"""
EVALUATIONS = 32


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments, checked before anything is loaded."""
    parser = _parser()
    return _completed(parser.parse_args(arguments), parser)


def _parser() -> Parser:
    parser = Parser("measure", PURPOSE)
    shared.add_workload_arguments(parser)
    parser.add_argument("--costs", metavar="FILE", help="measured costs of the step, from `gnnplace profile`, instead of a roofline")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--placement", metavar="PLACEMENT", help="a placement: a JSON file")
    way.add_argument("--planner", metavar="NAME", help="plan it now, with a planner that `gnnplace compare` lists")
    parser.add_argument(
        "--search",
        choices=get_args(SearchName),
        help="improve it by --evaluations real steps, guided by what comes with the package, or not",
    )
    parser.add_argument(
        "--evaluations", metavar="N", type=shared.positive, help=f"placements that --search measures; {EVALUATIONS} unless given"
    )
    parser.add_argument(
        "--ledger", metavar="FILE", type=shared.output, help="keeps what --search measures: the same command goes on from there"
    )
    parser.add_argument("-o", "--output", metavar="PLACEMENT", type=shared.output, help="the JSON file to write the measured placement to")
    parser.add_argument(
        "--against", metavar="PLACEMENT", help="the reference, a JSON file; the first device alone unless given; 'nothing': none"
    )
    parser.add_argument("--schedule", choices=SCHEDULES, help="another schedule than the placement's own")
    parser.add_argument(
        "--protocol", choices=get_args(ProtocolName), default="steady", help="steady unless given; paper: ten steps, the last five"
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    return parser


def _completed(chosen: argparse.Namespace, parser: Parser) -> argparse.Namespace:
    """The arguments, checked before anything is loaded."""
    for option in ("evaluations", "ledger"):
        if getattr(chosen, option) is not None and not chosen.search:
            parser.error(f"--{option}: without --search nothing is searched")
    return chosen
