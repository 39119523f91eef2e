"""`gnnplace profile`: measures every op of a workload and every link on this machine, for the simulator (`--costs`)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gnnplace.choices import STEPS
from gnnplace.commands import options, values
from gnnplace.commands.usage import DONE, MEASUREMENT_FAILED, Parser, importing
from gnnplace.report import terminal


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments; the output file can be written."""
    parser = Parser(
        "profile",
        "Writes a cost file: the time of every op on each kind of device, and of transfers between devices.",
    )
    options.add_workload_arguments(parser)
    options.add_file_argument(
        parser, "-o", "--output", metavar="COSTS", explained="the JSON file to write", required=True
    )
    parser.add_argument(
        "--steps",
        metavar="N",
        type=values.positive,
        default=STEPS,
        help=f"steps behind each median; {STEPS} unless given",
    )
    return parser.parse_args(arguments)


def main(chosen: argparse.Namespace) -> int:
    """Profiles the workload and writes its costs."""
    with importing():
        from gnnplace.execution.host import Host
        from gnnplace.execution.profile import profile
        from gnnplace.formats.costs import write_costs
        from gnnplace.isolation.outcome import MeasurementError
        from gnnplace.sources import graphs as sources
        from gnnplace.sources.workload import MICRO_BATCH_LOADER
    cluster = sources.cluster(chosen.cluster)
    try:
        with Host(MICRO_BATCH_LOADER, chosen.workload, chosen.seed, limit_s=chosen.limit) as host:
            host.allow(chosen.limit)
            costs = profile(host, cluster, chosen.steps)
    except MeasurementError as failed:
        terminal.warn(f"gnnplace profile: {failed}")
        return MEASUREMENT_FAILED
    write_costs(chosen.output, costs)
    totals = ", ".join(f"{kind} {terminal.milliseconds(int(times.sum()))}" for kind, times in costs.time_ns.items())
    terminal.progress(chosen.quiet)(f"{chosen.output}: {len(costs.op_names)} ops; a step's total on {totals}")
    return DONE
