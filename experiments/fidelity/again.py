"""What was measured, taken up again: its memory or its links measured anew, and all of it simulated anew."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.fidelity.measuring import NUM_CORES, as_lists, host_of, machine, named, peaks, simulated
from gnnplace.cluster import Cluster
from gnnplace.costs import links
from gnnplace.costs.measured import LinkSample, MeasuredCosts
from gnnplace.execution.machine import cores
from gnnplace.execution.measure import CHECKED_STEPS
from gnnplace.execution.profile import profile
from gnnplace.execution.workload import ExecutionPlan
from gnnplace.graph import ComputationGraph


def remember(executor: str, workload: str, found: dict[str, Any]) -> None:
    """Measures the peak memory of a workload's placements again, which no other load of the machine changes."""
    with host_of(executor, workload) as host:
        check_graph(host.graph, found)
        for name, row in found["rows"].items():
            with named(name):
                step = host.start(planned(row))
                step.run(CHECKED_STEPS)
                row["peak_memory_bytes"] = peaks(step)
                step.close()


def relink(executor: str, workload: str, found: dict[str, Any]) -> None:
    """Measures the links again and simulates what was measured anew."""
    with host_of(executor, workload) as host:
        check_graph(host.graph, found)
        samples = profile(host, cores("cores", NUM_CORES), 1).links
    found["links"] = as_lists(samples)
    resimulate(executor, workload, found)


def resimulate(executor: str, workload: str, found: dict[str, Any]) -> None:
    """Simulates what was measured anew."""
    with host_of(executor, workload) as host:
        check_graph(host.graph, found)
        cluster, op_ns, slowdown = measured_machine(executor, host.graph, found), np.array(found["op_ns"]), np.array(found["slowdown"])
        for row in found["rows"].values():
            each = planned(row)
            row |= simulated(host.as_run(each), each, cluster, op_ns, slowdown)


def check_graph(graph: ComputationGraph, found: dict[str, Any]) -> None:
    """Raises ValueError where a workload is not the graph any more that was measured."""
    if graph.sha256 != found["sha256"]:
        raise ValueError(f"{graph.name}: its graph has changed since it was measured ({found['sha256'][:12]}, now {graph.sha256[:12]})")


def measured_machine(executor: str, graph: ComputationGraph, found: dict[str, Any]) -> Cluster:
    """The two cores with the links that were measured."""
    samples = {tuple(pair): tuple(LinkSample(*sample) for sample in samples) for pair, samples in found["links"]}
    own_ns = np.array(found["op_ns"])[:, 0]
    return links.measured(machine(executor), [MeasuredCosts(graph.name, graph.sha256, graph.op_names, {"cpu": own_ns}, samples)])


def planned(row: dict[str, Any]) -> ExecutionPlan:
    """The plan of a placement that was measured."""
    device = np.array(list(map(int, row["device"])), dtype=np.int32)
    return ExecutionPlan(cores("cores", NUM_CORES).devices, device, np.array(row["order"], dtype=np.int32))
