"""`gnnplace export`: a placement as other programs read it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from gnnplace.commands import options
from gnnplace.commands.usage import DONE, Parser, importing
from gnnplace.complaints import UsageError
from gnnplace.exports.refusal import UnsayableError
from gnnplace.exports.targets import TARGETS, Model, export
from gnnplace.report import terminal


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments, with a path that can be written."""
    parser = Parser(
        "export",
        "Writes a placement as another program reads it. What a target can't say is one line, and nothing is written.",
    )
    options.add_problem_arguments(parser)
    parser.add_argument("--placement", metavar="PLACEMENT", required=True, help="a placement: a JSON file")
    explained = "; ".join(f"{name}: {target.purpose}" for name, target in TARGETS.items())
    parser.add_argument("--to", choices=tuple(TARGETS), required=True, help=explained)
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        type=options.new_path,
        required=True,
        help="the file or the new folder to write",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    chosen = parser.parse_args(arguments)
    writes_folder = TARGETS[chosen.to].folder
    if (there := Path(chosen.output)).is_dir() and not (writes_folder and not any(there.iterdir())):
        parser.error(
            f"-o/--output: {chosen.output}: is a folder; name a {'new one' if writes_folder else 'file'} to write"
        )
    return chosen


def main(chosen: argparse.Namespace) -> int:
    """Writes the placement for the target."""
    with importing():
        from gnnplace.formats.placements import read_placement
        from gnnplace.sources import graphs as sources
    told, model = terminal.progress(chosen.quiet), Model(chosen.graph, dict(chosen.dim), tuple(chosen.fetch))
    cluster = sources.cluster(chosen.cluster)
    with sources.opened(chosen.graph, options.reading(chosen)) as (graph, trial):
        problem = sources.costed(graph, cluster, chosen.costs, told)
        placement = read_placement(chosen.placement, problem.graph, cluster)
        try:
            export(problem, placement, chosen.to, chosen.output, model, terminal.warn, trial)
        except UnsayableError as refused:
            raise UsageError(f"--to {refused}") from refused
    told(f"written to {chosen.output}")
    return DONE
