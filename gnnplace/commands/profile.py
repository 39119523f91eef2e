"""`gnnplace profile`: measures every op of a workload and every link on this machine, for the simulator (`--costs`)."""

from __future__ import annotations

from collections.abc import Sequence

from gnnplace.commands import inputs
from gnnplace.commands.measure import add_workload_arguments
from gnnplace.commands.usage import DONE, MEASUREMENT_FAILED, Parser
from gnnplace.execution.host import Host
from gnnplace.execution.profile import STEPS, profile
from gnnplace.formats.costs import write_costs
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.report import terminal
from gnnplace.sources import graphs as sources
from gnnplace.sources.workload import LOADER


def main(arguments: Sequence[str]) -> int:
    """Writes a cost file: the time of every op on each kind of device of the cluster, and transfers between them."""
    parser = Parser("profile", main.__doc__ or "")
    add_workload_arguments(parser)
    parser.add_argument("-o", "--output", metavar="COSTS", required=True, help="the JSON file to write")
    parser.add_argument("--steps", metavar="N", type=inputs.positive, default=STEPS, help=f"steps behind each median; {STEPS} unless given")
    chosen = parser.parse_args(arguments)
    inputs.check_folder(chosen.output)
    cluster = sources.cluster(chosen.cluster)
    try:
        with Host(LOADER, chosen.workload, chosen.seed, limit_s=chosen.limit) as host:
            host.allow(chosen.limit)
            costs = profile(host, cluster, chosen.steps)
    except MeasurementError as failed:
        terminal.warn(f"gnnplace profile: {failed}")
        return MEASUREMENT_FAILED
    write_costs(chosen.output, costs)
    totals = ", ".join(f"{kind} {terminal.milliseconds(int(times.sum()))}" for kind, times in costs.time_ns.items())
    terminal.progress(chosen.quiet)(f"{chosen.output}: {len(costs.op_names)} ops; a step's total on {totals}")
    return DONE
