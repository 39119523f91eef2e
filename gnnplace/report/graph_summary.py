"""A graph in figures: its size, its work, its critical path on a cluster, and shares by kind and phase."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int64

from gnnplace.bounds.bounds import bound_name, lower_bound
from gnnplace.graph import NONE, Categorical, ComputationGraph
from gnnplace.problems import Problem
from gnnplace.schedules.paths import longest_paths


def summary(problem: Problem) -> dict[str, Any]:
    """A graph in figures: counts, memory, work, critical path, lower bound, and shares by kind and phase.

    Work and critical path have each op on its fastest allowed device, with free transfers. `parallelism` is work /
    critical path, an upper bound on the speed-up over one fastest device, whatever the number of devices.
    """
    graph, fastest = problem.graph, fastest_ns(problem)
    work, critical_path = int(fastest.sum()), longest_paths(graph, fastest).critical_path_ns
    roots = graph.output_alias == NONE
    return {
        "name": graph.name,
        "sha256": graph.sha256,
        "cluster": problem.cluster.name,
        "ops": graph.num_ops,
        "edges": graph.num_edges,
        "control_edges": int((graph.edge_data == NONE).sum()),
        "ops_without_kernel": int((~graph.kernel).sum()),
        "flops": int(graph.flops.sum()),
        "persistent_bytes": int(graph.persistent_bytes.sum()),
        "output_bytes": int(graph.output_bytes[roots].sum()),
        "largest_workspace_bytes": int(graph.workspace_bytes.max()),
        "work_ns": work,
        "critical_path_ns": critical_path,
        "parallelism": round(work / critical_path, 3),
        "bound_ns": lower_bound(problem),
        "bound": bound_name(problem),
        "kinds": shares(graph, graph.kind, fastest),
        "phases": shares(graph, graph.phase, fastest),
    }


def fastest_ns(problem: Problem) -> Int64[np.ndarray, " ops"]:
    """The time of each op on its fastest allowed device, or on the fastest of all where none is allowed."""
    fastest = np.where(problem.allowed, problem.time_ns, np.iinfo(np.int64).max).min(axis=1)
    return np.where(problem.allowed.any(axis=1), fastest, problem.time_ns.min(axis=1))


def shares(graph: ComputationGraph, column: Categorical, time_ns: np.ndarray) -> list[dict[str, Any]]:
    """The ops, flops, work and persistent bytes of each value of a column, most work first.

    Ops without a value have an entry with the value None.
    """
    rows = column.index + 1  # row 0: no value
    totals = {
        "ops": np.ones(graph.num_ops, dtype=np.int64),
        "flops": graph.flops,
        "work_ns": time_ns,
        "persistent_bytes": graph.persistent_bytes,
    }
    sums = {name: np.zeros(len(column.values) + 1, dtype=np.int64) for name in totals}
    for name, values in totals.items():
        np.add.at(sums[name], rows, values)
    entries = [
        {"value": value} | {name: int(total[row]) for name, total in sums.items()}
        for row, value in enumerate((None, *column.values))
        if sums["ops"][row]
    ]
    return sorted(entries, key=lambda share: -share["work_ns"])
