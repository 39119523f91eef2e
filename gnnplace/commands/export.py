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
    told, model = terminal.progress(chosen.quiet), Model(chosen.graph, dict(chosen.dim), tuple(chosen.fetch))
    cluster = sources.cluster(chosen.cluster)
    with sources.opened(chosen.graph, inputs.reading(chosen)) as (graph, trial):
        problem = sources.costed(graph, cluster, chosen.costs, told)
        placement = read_placement(chosen.placement, problem.graph, cluster)
        try:
            export(problem, placement, chosen.to, chosen.output, model, terminal.warn, trial)
        except UnsayableError as refused:
            raise UsageError(f"--to {refused}") from refused
    told(f"written to {chosen.output}")
    return DONE
