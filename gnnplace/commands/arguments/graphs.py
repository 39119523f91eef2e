"""The arguments of `gnnplace graphs list|show|import|synthetic`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import get_args

from gnnplace.choices import FAMILIES
from gnnplace.commands.arguments import shared
from gnnplace.commands.usage import Parser, parsed_action
from gnnplace.corpus.splits import Split

PURPOSE = "The corpus: list its graphs, show what one holds, import one from a file, make one whose ops cost what its ops cost."


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments of an action, which `action` names."""
    return parsed_action("graphs", PURPOSE, {"list": _list, "show": _show, "import": _import, "synthetic": _synthetic}, arguments)


def _list() -> Parser:
    parser = Parser("graphs list", "The graphs of the corpus.")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    return parser


def _show() -> Parser:
    parser = Parser("graphs show", "What a graph holds, and the most that placing it on a cluster can gain.")
    shared.add_problem_arguments(parser, preset="k40-2")
    parser.add_argument(
        "--picture", metavar="FILE", type=shared.output, help="draw what could run at once, and when each layer could: .png, .svg or .pdf"
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    return parser


def _import() -> Parser:
    parser = Parser("graphs import", "Adds a graph of a file to the corpus.")
    parser.add_argument("file", metavar="FILE", help="the file")
    shared.add_reading_arguments(parser, mode=None)
    parser.add_argument("--name", help="the name in the corpus; where absent its own, or the file's without its ending")
    for option in ("family", "lineage", "source", "licence"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--split", choices=get_args(Split), required=True)
    return parser


def _synthetic() -> Parser:
    parser = Parser("graphs synthetic", "A synthetic graph as JSON: a drawn shape whose ops cost what ops of real graphs cost.")
    parser.add_argument("family", choices=FAMILIES, metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--ops", type=shared.count, required=True, metavar="N", help="how many ops")
    parser.add_argument("--seed", type=shared.seed, default=0, help="another seed, another graph")
    parser.add_argument("--width", type=int, help="ops side by side, or chains of a fork; the family's own where absent")
    parser.add_argument("--density", type=float, help="edges an op in the mean")
    parser.add_argument("--blocks", type=int, help="how often a pattern is repeated")
    parser.add_argument("--donors", nargs="+", metavar="GRAPH", help="whose ops lend their costs; the training split where absent")
    parser.add_argument("-o", "--output", metavar="FILE", type=shared.output, required=True, help="the JSON file")
    return parser
