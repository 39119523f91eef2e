"""`gnnplace export`: a placement as other programs read it."""

from __future__ import annotations

import argparse

from gnnplace.commands import inputs
from gnnplace.commands.usage import DONE
from gnnplace.complaints import UsageError
from gnnplace.exports.model import Model
from gnnplace.exports.refusal import UnsayableError
from gnnplace.exports.targets import export
from gnnplace.formats.placements import read_placement
from gnnplace.report import terminal
from gnnplace.sources import graphs as sources


def main(chosen: argparse.Namespace) -> int:
    """Writes the placement for the target."""
    problem = inputs.problem(chosen)
    placement = read_placement(chosen.placement, problem.graph, sources.cluster(chosen.cluster))
    try:
        export(problem, placement, chosen.to, chosen.output, Model(chosen.graph, dict(chosen.dim), tuple(chosen.fetch)))
    except UnsayableError as refused:
        raise UsageError(f"--to {refused}") from refused
    terminal.progress(chosen.quiet)(f"written to {chosen.output}")
    return DONE
