"""`gnnplace export`: a placement in the format of another program."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from gnnplace.commands import form_options, options, values
from gnnplace.commands.usage import DONE, Parser, importing
from gnnplace.complaints import UsageError
from gnnplace.exports.targets import TARGETS, Model, check_micro_batches, export
from gnnplace.report import terminal
from gnnplace.runtimes.refusal import UnsayableError

OR_FOR = "; or place with --for {}, which keeps together what it must"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments; the output path can be written."""
    parser = Parser(
        "export",
        "Writes a placement as another program reads it. What a target can't say is one line, and nothing is written.",
    )
    options.add_problem_arguments(parser)
    options.add_placement_argument(parser)
    explained = "; ".join(f"{name}: {target.purpose}" for name, target in TARGETS.items())
    parser.add_argument("--to", choices=tuple(TARGETS), required=True, help=explained)
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        type=values.new_path,
        required=True,
        help="the file or the new folder to write",
    )
    options.add_quiet_argument(parser)
    chosen = parser.parse_args(arguments)
    writes_folder = bool(TARGETS[chosen.to].folder)
    path = Path(chosen.output)
    if path.is_dir() and not (writes_folder and not any(path.iterdir())):
        wanted = "new one" if writes_folder else "file"
        parser.error(f"-o/--output: {path}: is a folder; name a {wanted} to write")
    return chosen


def main(chosen: argparse.Namespace) -> int:
    """Writes the placement in the target's format."""
    with importing():
        from gnnplace.formats.placements import read_placement
        from gnnplace.runtimes.runtime import RUNTIMES
        from gnnplace.sources import graphs as sources
    say, model = terminal.progress(chosen.quiet), Model(chosen.graph, dict(chosen.dim), tuple(chosen.fetch))
    cluster, step = sources.cluster(chosen.cluster), form_options.parallelism(chosen, chosen.placement)
    runtime = options.runtime(chosen.runtime, chosen.placement)
    try:
        check_micro_batches(chosen.to, step.micro_batches)  # before the graph is captured
        if TARGETS[chosen.to].folder == "several" and step.micro_batches == 1 and Path(chosen.output).is_dir():
            raise UsageError(f"-o/--output: {chosen.output}: is a folder; name a file to write")
        with sources.opened(chosen.graph, options.reading(chosen)) as (graph, trial):
            problem = sources.costed(graph, cluster, chosen.costs, say, terminal.warn, step, runtime)
            placement = read_placement(chosen.placement, problem.graph, cluster)
            export(problem, placement, chosen.to, chosen.output, model, terminal.warn, trial)
    except UnsayableError as refused:
        keeps = runtime is None and any(name == chosen.to and each.kept_together for name, each in RUNTIMES.items())
        raise UsageError(f"--to {refused}{OR_FOR.format(chosen.to) if keeps else ''}") from refused
    say(f"written to {chosen.output}")
    return DONE
