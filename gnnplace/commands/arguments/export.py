"""The arguments of `gnnplace export`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from gnnplace.commands.arguments import shared
from gnnplace.commands.usage import Parser
from gnnplace.exports.table import TARGETS


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments, with a path that can be written."""
    parser = Parser(
        "export", "Writes a placement as another program reads it. What a target can't say is one line, and nothing is written."
    )
    shared.add_problem_arguments(parser)
    parser.add_argument("--placement", metavar="PLACEMENT", required=True, help="a placement: a JSON file")
    explained = "; ".join(f"{name}: {target.purpose}" for name, target in TARGETS.items())
    parser.add_argument("--to", choices=tuple(TARGETS), required=True, help=explained)
    parser.add_argument("-o", "--output", metavar="PATH", type=shared.new_path, required=True, help="the file or the new folder to write")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    chosen = parser.parse_args(arguments)
    writes_folder = TARGETS[chosen.to].folder
    if (there := Path(chosen.output)).is_dir() and not (writes_folder and not any(there.iterdir())):
        parser.error(f"-o/--output: {chosen.output}: is a folder; name a {'new one' if writes_folder else 'file'} to write")
    return chosen
