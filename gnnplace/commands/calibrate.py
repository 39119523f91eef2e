"""`gnnplace calibrate`: this machine as a cluster file, its constants fitted to what workloads were measured to take."""

from __future__ import annotations

import argparse
from pathlib import Path

from gnnplace.choices import STEPS
from gnnplace.commands.usage import DONE, MEASUREMENT_FAILED
from gnnplace.costs.calibration import Calibration, calibrated
from gnnplace.execution.host import Host
from gnnplace.execution.machine import machine
from gnnplace.execution.profile import profile
from gnnplace.formats.clusters import write_cluster
from gnnplace.isolation.outcome import MeasurementError
from gnnplace.report import terminal
from gnnplace.sources import graphs as sources
from gnnplace.sources.workload import LOADER


def main(chosen: argparse.Namespace) -> int:
    """Profiles the workloads and writes the cluster."""
    template = sources.cluster(chosen.cluster) if chosen.cluster else machine(Path(chosen.output).stem, chosen.receive)
    measured = []
    try:
        for workload in chosen.workload:
            with Host(LOADER, workload, chosen.seed, limit_s=chosen.limit) as host:
                measured.append((host.graph, profile(host, template, STEPS)))
    except MeasurementError as failed:
        terminal.warn(f"gnnplace calibrate: {failed}")
        return MEASUREMENT_FAILED
    cluster, fits = calibrated(template, measured)
    write_cluster(chosen.output, cluster)
    for name, fit in fits.items():
        terminal.progress(chosen.quiet)(f"{name}: {_described(fit)}")
    return DONE


def _described(fit: Calibration) -> str:
    open_questions = f"; hardly determined: {', '.join(fit.undetermined)}" if fit.undetermined else ""
    return f"median error of an op {fit.median_error:.0%}, of the total {fit.total_error:+.1%}, {fit.num_ops} ops{open_questions}"
