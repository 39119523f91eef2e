"""Pools of moves whose gains are known, from searches on graphs of the corpus, with the graph that a GNN reads of each placement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from gnnplace.baselines.ranked_climb import path_estimate
from gnnplace.corpus import manifest
from gnnplace.costs import roofline
from gnnplace.moves.neighbourhood import neighbourhood
from gnnplace.policies.improver.config import MovesConfig
from gnnplace.policies.improver.pools import Labelled, Searched
from gnnplace.policies.protocol import Practice
from gnnplace.problems import Problem
from gnnplace.simulator.simulator import simulate
from gnnplace.sources import graphs as sources
from gnnplace.training.run.selection import drawn
from gnnplace.training.update.objectives import start

PRESETS = ("cpu-2", "h200-8", "k40-2", "k40-4", "k40-8", "mixed-4", "p100-8", "v100-8")
CONFIG = MovesConfig(pools=6, drawn=200, lists=24)
FROM_PRESETS, CLUSTERS = 0.5, 10**5


class Known(NamedTuple):
    """A pool, and of its placement the ops with what their timeline says, edges with what they carry, and which ops each move moves."""

    lineage: str
    rows: Float32[np.ndarray, "moves features"]
    gain: Float32[np.ndarray, " moves"]
    node: Float32[np.ndarray, "ops columns"]
    device: Int64[np.ndarray, " ops"]
    edges: Int64[np.ndarray, "2 edges"]
    edge: Float32[np.ndarray, "edges 2"]
    moved: Int64[np.ndarray, "2 moved"]  # move, op
    target: Int64[np.ndarray, " moved"]


def collected(lineages: Sequence[str], count: int, most_ops: int, seed: int) -> list[Known]:
    """So many pools of these lineages, as many of each as its number of graphs allows."""
    generator, found = np.random.default_rng(seed), list[Known]()
    names = {each: [entry.name for entry in manifest.entries() if entry.lineage == each and entry.ops <= most_ops] for each in lineages}
    present = [each for each in lineages if names[each]]
    chance = np.sqrt([len(names[each]) for each in present])
    while len(found) < count:
        lineage = present[generator.choice(len(present), p=chance / chance.sum())]
        graph = manifest.graph(names[lineage][generator.integers(len(names[lineage]))])
        preset = generator.random() < FROM_PRESETS
        machine = sources.cluster(PRESETS[generator.integers(len(PRESETS))]) if preset else drawn(int(generator.integers(CLUSTERS)))
        problem = roofline.problem(graph, machine)
        practice = Practice(simulate, start, generator)
        found += [_known(lineage, problem, pool) for pool in Searched(problem, path_estimate, CONFIG, practice).pools()]
    return found[:count]


def _known(lineage: str, problem: Problem, pool: Labelled) -> Known:
    graph, known = problem.graph, pool.situation
    around, step = neighbourhood(problem), known.step_ns
    work = known.end_ns - known.start_ns
    times = np.stack([work, known.start_ns, known.tail_ns, known.start_ns - known.ready_ns, *known.chain_ns.T], axis=1) / step
    load = known.load_ns[known.device][:, None] / step
    node = np.concatenate([times, np.log10(1 + work / step * 1e6)[:, None] / 6, load], axis=1)
    carried = np.log10(1.0 + graph.edge_bytes) / 10
    crosses = known.device[graph.edge_src] != known.device[graph.edge_dst]
    size = np.diff(pool.moves.ptr)
    unit_ops = np.argsort(around.closure.unit, kind="stable")
    first = np.searchsorted(around.closure.unit[unit_ops], np.arange(around.closure.num_units + 1))
    counts = np.diff(first)[pool.moves.unit]
    move = np.repeat(np.repeat(np.arange(len(size)), size), counts)
    ops = np.concatenate([unit_ops[first[unit] : first[unit + 1]] for unit in pool.moves.unit])
    return Known(
        lineage,
        pool.rows,
        pool.gain.astype(np.float32),
        node.astype(np.float32),
        known.device.astype(np.int64),
        np.stack([graph.edge_src, graph.edge_dst]).astype(np.int64),
        np.stack([carried, crosses], axis=1).astype(np.float32),
        np.stack([move, ops]),
        np.repeat(pool.moves.device, counts).astype(np.int64),
    )


def captured(score: Tensor | np.ndarray, known: Known, first: int = 4) -> float:
    """The share of a pool's best gain that the first few moves by a score have."""
    order = torch.as_tensor(score).argsort(descending=True, stable=True)[:first].numpy()
    return float(known.gain[order].max() / known.gain.max())
