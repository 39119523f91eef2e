"""What fits a K40 here and in the paper: the peak memory of each row's step on one GPU and as the expert places it, and what would add.

*gated, dropout*: the same step as TensorFlow 1.3 might have held it: the gradients of an op wait for each other (`Optimizer.minimize`), and
what an LSTM cell yields is dropped in part. *allocator*: 17 % more, the most that TensorFlow's was measured to hold (`../fidelity`).
ResNet-152 does not fit here and did there: the largest batch that does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import tensorflow as tf

from datasets.build import tensorflow_resnet
from datasets.build_tensorflow import WORKLOADS
from experiments import output, results
from experiments.cells import Cell
from experiments.op_counts.run import dropout, gated
from experiments.table1.run import CLUSTERS, PAPER
from gnnplace.baselines.single import on_each
from gnnplace.cluster import Cluster
from gnnplace.corpus import clusters, manifest
from gnnplace.costs import roofline
from gnnplace.frontends.tensorflow.graph import read_step
from gnnplace.graph import MAX_BYTES, ComputationGraph
from gnnplace.placement import Placement, Schedule
from gnnplace.portfolio import planners
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate

PATH = Path(__file__).resolve().parent / "results" / "feasibility.json"
SCHEDULES: tuple[Schedule, ...] = ("fifo", "critical-path")
ALLOCATOR = 1.17
BATCHES = (128, 112, 96, 80, 64)  # of ResNet-152
HEADER = ["graph", "one GPU in the paper", "variables", "one GPU here", "gated, dropout", "and allocator", "expert here"]


def peaks(graph: ComputationGraph, cluster: Cluster, plan: Callable[[Problem], Placement]) -> dict[str, int]:
    """The most memory in use on one accelerator, in bytes, where each has as much as it needs."""
    problem = roofline.problem(graph, cluster)
    placement = plan(problem)
    boundless = Cluster(cluster.name, tuple(replace(device, memory_bytes=MAX_BYTES) for device in cluster.devices), cluster.links)
    unlimited = roofline.problem(graph, boundless)
    found = simulate(unlimited, [replace(placement, schedule=schedule) for schedule in SCHEDULES])
    held = [step.peak_memory_bytes for step in found]
    assert all(peak is not None for peak in held)
    return {schedule: int(np.max(peak[cluster.accelerators])) for schedule, peak in zip(SCHEDULES, held, strict=True)}


def alone(problem: Problem) -> Placement:
    """Everything on the first GPU."""
    return on_each(problem, [int(problem.cluster.accelerators[0])])[0]


def expert(problem: Problem) -> Placement:
    """As a human expert places it."""
    return planners.planners(problem, simulate, 0)["expert"](problem)


def step(name: str, build_step: Callable[[], tuple[tf.Tensor, tf.Operation]]) -> ComputationGraph:
    """A training step as it is built now."""
    with tf.Graph().as_default() as built:
        loss, train = build_step()
    return read_step(built, [loss.name, train.name], name)


def row(name: str) -> Cell:
    """The figures of one row, in bytes."""
    graph, cluster = manifest.graph(name), clusters.cluster(CLUSTERS[name])
    with gated(), dropout():
        older = step(name, WORKLOADS[name].build)
    return {
        "memory_bytes": int(cluster.memory_bytes[cluster.accelerators[0]]),
        "variables_bytes": int(graph.persistent_bytes.sum()),
        "one_gpu": peaks(graph, cluster, alone),
        "older": peaks(older, cluster, alone),
        "expert": peaks(graph, cluster, expert),
    }


def resnet_batches() -> dict[int, dict[str, int]]:
    """The peaks of ResNet-152 on one GPU, by batch."""
    cluster = clusters.cluster(CLUSTERS["resnet-152"])
    return {batch: peaks(step("resnet-152", partial(tensorflow_resnet.build, 152, batch)), cluster, alone) for batch in BATCHES}


def line(name: str, found: Cell) -> list[str]:
    """A row of the table: MiB, under fifo / critical-path, in bold what a K40 does not hold."""

    def shown(peak: float) -> str:
        text = f"{peak / 2**20:,.0f}"
        return f"**{text}**" if peak > found["memory_bytes"] else text

    def both(which: str, factor: float = 1.0) -> str:
        return " / ".join(shown(factor * found[which][schedule]) for schedule in SCHEDULES)

    fits = "out of memory" if PAPER[name]["gpu"] is None else "fits"
    return [name, fits, shown(found["variables_bytes"]), both("one_gpu"), both("older"), both("older", ALLOCATOR), both("expert")]


def main() -> None:
    chosen = output.parser(__doc__).parse_args()
    found = {name: row(name) for name in PAPER}
    batches = resnet_batches()
    table = results.markdown_table(HEADER, [line(name, cell) for name, cell in found.items()])
    lines = [[str(batch), *(f"{peak / 2**20:,.0f}" for peak in by_schedule.values())] for batch, by_schedule in batches.items()]
    table += "\n" + results.markdown_table(["ResNet-152, batch", *SCHEDULES], lines)
    results.save(PATH, {"provenance": results.provenance(PATH.parents[1]), "rows": found, "resnet_batches": batches})
    output.show(table, found, chosen, PATH.with_suffix(".md"))


if __name__ == "__main__":
    main()
