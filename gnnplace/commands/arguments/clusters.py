"""The arguments of `gnnplace clusters list|show|new`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gnnplace.commands.arguments import shared
from gnnplace.commands.usage import Parser, parsed_action

PURPOSE = "Machines: list the hardware that is known and the presets, show a machine, write one down as a cluster file."


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments of an action, which `action` names."""
    return parsed_action("clusters", PURPOSE, {"list": _list, "show": _show, "new": _new}, arguments)


def _list() -> Parser:
    parser = Parser("clusters list", "The devices and links that a machine may be written down with, and the presets.")
    parser.add_argument("--sources", action="store_true", help="the documents that the rates are from")
    parser.add_argument("--json", action="store_true", help="one line of JSON, with everything that is known")
    return parser


def _show() -> Parser:
    parser = Parser("clusters show", "The devices of a machine and the links between them.")
    _add_cluster(parser)
    parser.add_argument("--json", action="store_true", help="the cluster document as one line of JSON")
    return parser


def _new() -> Parser:
    parser = Parser("clusters new", "Writes a machine down as a cluster file, for you to change what is different in yours.")
    _add_cluster(parser)
    parser.add_argument("-o", "--output", metavar="FILE", type=shared.output, required=True, help="the JSON file to write")
    parser.add_argument("--name", help="the name of the cluster; its own unless given")
    return parser


def _add_cluster(parser: Parser) -> None:
    explained = "a machine such as '2x rtx-4090 + l4, pcie4', a preset, a JSON file (ends in .json or has a '/'), or here: this one"
    parser.add_argument("cluster", metavar="CLUSTER", help=explained)
