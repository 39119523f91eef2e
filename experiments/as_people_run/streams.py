"""DDP both ways: a ring's hops wait for the stream that computes, or have a stream of their own, as NCCL's kernels do.

    python -m experiments.as_people_run.streams

In the second way a device has two streams, and control edges keep all ops but the rings' in the order in which they ran on one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from experiments import results
from gnnplace.baselines.data_parallel.ddp import ddp
from gnnplace.bounds.bounds import lower_bound
from gnnplace.costs.roofline import problem
from gnnplace.graph import CONTROL, NONE, ComputationGraph
from gnnplace.problems import Problem
from gnnplace.result import Proposal
from gnnplace.simulator.simulator import simulate
from gnnplace.sources import graphs
from gnnplace.transformations.parallelism import Parallelism

HERE = Path(__file__).resolve().parent
CELLS = [
    (graph, cluster)
    for cluster in ("k40-4", "v100-8")
    for graph in ("gpt2", "bert-base", "vit-b16", "resnet-50", "transformer-xl-4")
]  # fmt: skip
MICRO_BATCHES = 8


def apart(proposal: Proposal) -> Problem:
    """The proposal's problem with a second stream on each device, which only rings can use."""
    graph, cluster = proposal.problem.graph, proposal.problem.cluster
    assert graph.copies is not None
    (step,) = simulate(proposal.problem, [proposal.placement], timeline=True)
    assert step.timeline is not None
    computes = np.flatnonzero(~(graph.copies.added & (graph.copies.micro_batch == NONE)))
    order = computes[np.lexsort((graph.level[computes], step.timeline.start_ns[computes], proposal.placement.device[computes]))]
    follows = proposal.placement.device[order[:-1]] == proposal.placement.device[order[1:]]
    streams = replace(cluster, devices=tuple(replace(device, streams=2) for device in cluster.devices))
    return problem(_waiting(graph, order[:-1][follows], order[1:][follows]), streams)


def _waiting(graph: ComputationGraph, first: np.ndarray, second: np.ndarray) -> ComputationGraph:
    """The graph in which each of the second ops waits for the first one."""
    added = np.stack([first, np.full(len(first), CONTROL), second], axis=1)
    edges = np.unique(np.concatenate([np.stack([graph.edge_src, graph.edge_output, graph.edge_dst], axis=1), added]), axis=0)
    src, output, dst = edges.astype(np.int32).T.copy()
    return replace(graph, edge_src=src, edge_output=output, edge_dst=dst)


def main() -> None:
    rows = []
    for graph, cluster in CELLS:
        machine, one = graphs.cluster(cluster), graphs.graph(graph)
        proposal = ddp(problem(Parallelism(MICRO_BATCHES).of(one), machine), simulate)
        bound_ns = lower_bound(problem(Parallelism(MICRO_BATCHES, "free").of(one), machine))
        steps = [simulate(posed, [proposal.placement])[0] for posed in (proposal.problem, apart(proposal))]
        waiting, beside = (step.step_time_ns or 0 for step in steps)
        rows.append({"graph": graph, "cluster": cluster, "bound_ns": bound_ns, "waiting_ns": waiting, "beside_ns": beside})
        print(graph, cluster, *(f"{ns / bound_ns:.3f}" for ns in (waiting, beside)), flush=True)
    results.save(HERE / "results" / "streams.json", {"provenance": results.provenance(HERE), "micro_batches": MICRO_BATCHES, "rows": rows})


if __name__ == "__main__":
    main()
