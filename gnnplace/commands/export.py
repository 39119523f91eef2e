"""`gnnplace export`: a placement as other programs read it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gnnplace.commands import inputs
from gnnplace.commands.usage import DONE, Parser
from gnnplace.exports.model import Model
from gnnplace.exports.refusal import UnsayableError
from gnnplace.exports.targets import TARGETS, export
from gnnplace.formats.placements import read_placement
from gnnplace.report import terminal
from gnnplace.sources import graphs as sources


def main(arguments: Sequence[str]) -> int:
    """Writes a placement as another program reads it. What a target can't say is one line, and nothing is written."""
    parser = Parser("export", main.__doc__ or "")
    inputs.add_problem_arguments(parser)
    parser.add_argument("--placement", metavar="PLACEMENT", required=True, help="a placement: a JSON file")
    explained = "; ".join(f"{name}: {target.purpose}" for name, target in TARGETS.items())
    parser.add_argument("--to", choices=tuple(TARGETS), required=True, help=explained)
    parser.add_argument("-o", "--output", metavar="PATH", type=inputs.new_path, required=True, help="the file or the new folder to write")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    chosen = parser.parse_args(arguments)
    if (there := Path(chosen.output)).is_dir() and not (TARGETS[chosen.to].folder and not any(there.iterdir())):
        parser.error(f"-o/--output: {chosen.output}: is a folder; name a {'new one' if TARGETS[chosen.to].folder else 'file'} to write")
    problem = inputs.problem(chosen)
    placement = read_placement(chosen.placement, problem.graph, sources.cluster(chosen.cluster))
    try:
        export(problem, placement, chosen.to, chosen.output, Model(chosen.graph, dict(chosen.dim), tuple(chosen.fetch)))
    except UnsayableError as refused:
        parser.error(f"--to {refused}")
    terminal.progress(chosen.quiet)(f"written to {chosen.output}")
    return DONE
