"""`gnnplace calibrate`: this machine as a cluster file, whose constants are fitted to measured workloads."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnnplace.choices import STEPS
from gnnplace.commands import options
from gnnplace.commands.usage import DONE, MEASUREMENT_FAILED, Parser, importing
from gnnplace.report import terminal

if TYPE_CHECKING:
    from gnnplace.costs.calibration import Calibration

PURPOSE = (
    "Profiles workloads here and writes a cluster whose rates, launches and links say the same: any graph can "
    "be simulated on it."
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed arguments; the output file can be written."""
    parser = Parser("calibrate", PURPOSE)
    parser.add_argument(
        "workload",
        metavar="WORKLOAD",
        nargs="+",
        help="workloads as for `gnnplace measure`; the more kinds of ops, the better",
    )
    parser.add_argument(
        "--cluster",
        metavar="CLUSTER",
        help="the cluster to calibrate; unless given, this machine's GPUs and a core, or its cores",
    )
    parser.add_argument(
        "--receive",
        action="store_true",
        help="the receiving core, too, copies each message, as in TensorFlow's servers",
    )
    options.add_file_argument(
        parser, "-o", "--output", metavar="CLUSTER", explained="the JSON file to write", required=True
    )
    options.add_run_arguments(parser, "for each workload")
    chosen = parser.parse_args(arguments)
    if chosen.receive and chosen.cluster:
        parser.error("--receive: the cluster says it itself, by the receive_channel of its links")
    return chosen


def main(chosen: argparse.Namespace) -> int:
    """Profiles the workloads and writes the cluster."""
    with importing():
        from gnnplace.costs.calibration import calibrated
        from gnnplace.execution.host import Host
        from gnnplace.execution.machine import machine
        from gnnplace.execution.profile import profile
        from gnnplace.formats.clusters import write_cluster
        from gnnplace.isolation.outcome import MeasurementError
        from gnnplace.sources import graphs as sources
        from gnnplace.sources.workload import MICRO_BATCH_LOADER
    template = sources.cluster(chosen.cluster) if chosen.cluster else machine(Path(chosen.output).stem, chosen.receive)
    profiles = []
    try:
        for workload in chosen.workload:
            with Host(MICRO_BATCH_LOADER, workload, chosen.seed, limit_s=chosen.limit) as host:
                profiles.append((host.graph, profile(host, template, STEPS)))
    except MeasurementError as failed:
        terminal.warn(f"gnnplace calibrate: {failed}")
        return MEASUREMENT_FAILED
    cluster, fits = calibrated(template, profiles)
    write_cluster(chosen.output, cluster)
    for name, fit in fits.items():
        terminal.progress(chosen.quiet)(f"{name}: {_described(fit)}")
    return DONE


def _described(fit: Calibration) -> str:
    undetermined = f"; hardly determined: {', '.join(fit.undetermined)}" if fit.undetermined else ""
    return (
        f"median error of an op {fit.median_error:.0%}, of the total {fit.total_error:+.1%}, {fit.num_ops} "
        f"ops{undetermined}"
    )
