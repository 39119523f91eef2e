"""What each extension of the simulator is worth: the measured placements, simulated with and without it.

    python -m experiments.fidelity.ablation torch
    python -m experiments.fidelity.ablation tensorflow

Measures nothing. `engines`: copies occupy no core. `senders`: they occupy the sending one. `receivers`: the receiving one, too, where the
executor's do. `messages`: control edges between devices are sent, where the executor sends them. `contention`: and ops beside others last
longer; that is what `run.py` prints.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments import results
from experiments.fidelity import figures
from experiments.fidelity.again import check_graph, measured_machine, planned
from experiments.fidelity.measuring import host_of, simulated
from experiments.fidelity.run import HERE
from gnnplace.cluster import Link
from gnnplace.execution.control_edges import in_order

LINKS: dict[str, Callable[[Link], Link]] = {
    "engines": lambda link: replace(link, channel=None, receive_channel=None),
    "senders": lambda link: replace(link, receive_channel=None),
}
VARIANTS = (*LINKS, "receivers", "messages", "contention")


def ablated(executor: str, workload: str, found: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Rank correlation and median error of a workload's placements under each variant."""
    op_ns, slowdown = np.array(found["op_ns"]), np.array(found["slowdown"])
    with host_of(executor, workload) as host:
        check_graph(host.graph, found)
        plans = [planned(row) for row in found["rows"].values()]
        as_run = [host.as_run(plan) for plan in plans]
        ordered = [in_order(host.graph, plan.device, plan.order) for plan in plans]
        cluster = measured_machine(executor, host.graph, found)
    result = {}
    for name in VARIANTS:
        machine = replace(cluster, links=tuple(map(LINKS.get(name, lambda link: link), cluster.links)))
        times = op_ns, slowdown if name == "contention" else np.ones_like(slowdown)
        graphs = as_run if name in ("messages", "contention") else ordered
        result[name] = _figures(found, [simulated(*pair, machine, *times) for pair in zip(graphs, plans, strict=True)])
    return result


def _figures(found: dict[str, Any], predictions: list[dict[str, Any]]) -> dict[str, float]:
    rows = {name: row | predicted for (name, row), predicted in zip(found["rows"].items(), predictions, strict=True)}
    own = figures.of(rows)
    return {name: own[name] for name in ("spearman", "median_error", "choice_over_best")}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table and saves it beside the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("executor", choices=tuple(figures.WORKLOADS))
    parser.add_argument("--results", type=Path, default=HERE / "results")
    chosen = parser.parse_args(arguments)
    document = results.load(chosen.results / f"{chosen.executor}.json") or {"workloads": {}}
    found = {name: ablated(chosen.executor, name, each) for name, each in document["workloads"].items()}
    results.save(chosen.results / f"{chosen.executor}_ablation.json", {"workloads": found, "provenance": results.provenance(HERE)})
    lines = [[name, *(f"{f['spearman']:.3f}, {f['median_error']:.1%}" for f in each.values())] for name, each in found.items()]
    print(results.markdown_table(["Spearman, median error", *VARIANTS], lines))


if __name__ == "__main__":
    main()
