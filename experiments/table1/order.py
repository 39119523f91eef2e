"""Why the paper's baselines come in another order here: its five columns again, with one thing after another made as it was there.

*as in the table*: each mapping the best of three kinds of units and eight seeds, critical-path schedule. *fifo*: TensorFlow's order.
*one mapping*: of ops, of one seed, as a user of Scotch gets it. *dispatch*: an op costs a device 6 us more (what Inception-V3 at batch 1
comes to in the paper). *transfers*: each occupies its channel 100 us more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from experiments import results
from experiments.problems import time_ns
from experiments.table1.run import CLUSTERS, COLUMNS, PAPER, order
from gnnplace.baselines.scotch import min_cut, scotch
from gnnplace.cluster import Cluster, Device
from gnnplace.corpus import clusters, manifest
from gnnplace.costs import roofline
from gnnplace.placement import Placement, Schedule
from gnnplace.portfolio import planners
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate

PATH = Path(__file__).resolve().parent / "results" / "order.json"
DISPATCH_NS, TRANSFER_NS = 6_000, 100_000
HEADER = ["graph", "the paper", "as in the table", "fifo", "one mapping, fifo", "and dispatch", "and transfers"]


def best_mappings(problem: Problem, schedule: Schedule) -> dict[str, int | None]:
    """The columns as in the table, under a schedule."""
    named = planners.planners(problem, simulate, 0, schedule)
    return {name: time_ns(problem, named[name](problem)) for name in COLUMNS}


def one_mapping(problem: Problem) -> dict[str, int | None]:
    """The columns under fifo, Scotch and MinCut with ops as units and one seed."""
    named = planners.planners(problem, simulate, 0, "fifo")
    single: Mapping[str, Callable[..., Placement]] = {"scotch": scotch, "min-cut": min_cut}
    found = {name: named[name](problem) for name in COLUMNS if name not in single}
    found |= {name: plan(problem, simulate, units_name="ops", seeds=1, schedule="fifo") for name, plan in single.items()}
    return {name: time_ns(problem, found[name]) for name in COLUMNS}


def slower(cluster: Cluster, dispatch_ns: int, transfer_ns: int) -> Cluster:
    """The cluster with so much more of every op, and of every transfer."""

    def slow(device: Device) -> Device:
        return replace(device, launch_ns=device.launch_ns + dispatch_ns, dispatch_ns=device.dispatch_ns + dispatch_ns)

    links = [replace(link, overhead_ns=link.overhead_ns + transfer_ns) for link in cluster.links]
    return Cluster(cluster.name, tuple(map(slow, cluster.devices)), tuple(links))


def row(graph: str) -> dict[str, dict[str, int | None]]:
    """The columns of one graph in every scenario, in nanoseconds."""
    source, cluster = manifest.graph(graph), clusters.cluster(CLUSTERS[graph])
    problem = roofline.problem(source, cluster)
    return {
        "as in the table": best_mappings(problem, "critical-path"),
        "fifo": best_mappings(problem, "fifo"),
        "one mapping, fifo": one_mapping(problem),
        "and dispatch": one_mapping(roofline.problem(source, slower(cluster, DISPATCH_NS, 0))),
        "and transfers": one_mapping(roofline.problem(source, slower(cluster, DISPATCH_NS, TRANSFER_NS))),
    }


def main() -> None:
    rows = {graph: row(graph) for graph in PAPER}
    results.save(PATH, {"provenance": results.provenance(PATH.parents[2]), "rows": rows})
    lines = [[graph, *_orders(graph, scenarios)] for graph, scenarios in rows.items()]
    table = results.markdown_table(HEADER, lines)
    PATH.with_suffix(".md").write_text(table)
    print(table)
    print(json.dumps(rows))


def _orders(graph: str, scenarios: Mapping[str, Mapping[str, int | None]]) -> list[str]:
    paper = order({name: time for name, time in PAPER[graph].items() if name in COLUMNS})
    return [paper, *(order({name: time and time / 1e9 for name, time in times.items()}) for times in scenarios.values())]


if __name__ == "__main__":
    main()
