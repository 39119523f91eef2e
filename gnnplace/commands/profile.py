"""`gnnplace profile`: measures every op of a workload and every link on this machine, for the simulator (`--costs`)."""

from __future__ import annotations

import argparse

from gnnplace.commands.usage import DONE, MEASUREMENT_FAILED
from gnnplace.execution.host import Host
from gnnplace.execution.profile import profile
from gnnplace.formats.costs import write_costs
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.report import terminal
from gnnplace.sources import graphs as sources
from gnnplace.sources.workload import LOADER


def main(chosen: argparse.Namespace) -> int:
    """Profiles the workload and writes its costs."""
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
