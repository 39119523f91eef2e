"""Some layers at one home each, the others replicated: DLRM's tables, the experts of a mixture.

- `hybrid`: embedding tables have a home, and the dense layers are replicated (Naumov et al., arXiv 1906.00091, 2019).
- `expert_parallel`: experts have a home; tokens go there and back (Lepikhin et al., GShard, ICLR 2021; Rajbhandari et
  al., DeepSpeed-MoE, ICML 2022).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable

import numpy as np
from jaxtyping import Int32

from gnnplace.baselines.data_parallel.forms import best_of, copies_of, original, replicated
from gnnplace.baselines.data_parallel.shares import shares
from gnnplace.baselines.data_parallel.turns import turns
from gnnplace.graph import CONTROL, NONE, ComputationGraph
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator, Proposal
from gnnplace.units.units import colocation_closure

EXPERT = re.compile(r"(?P<layer>.*\bexperts?\b.*?)[./_](?P<number>\d+)(?=[./]|$)", re.IGNORECASE)


def hybrid(problem: Problem, evaluate: Evaluator) -> Proposal | None:
    """Tables spread over the replicas by their bytes, the largest first; None for a graph without tables."""
    held = tables(original(problem))

    def homes(number: int) -> dict[str, int]:
        load, home = np.zeros(number, dtype=np.int64), dict[str, int]()
        for layer in sorted(held, key=lambda layer: (-held[layer], layer)):
            home[layer] = int(np.argmin(load))
            load[home[layer]] += held[layer]
        return home

    return _best(problem, evaluate, homes) if held else None


def expert_parallel(problem: Problem, evaluate: Evaluator) -> Proposal | None:
    """The experts of each layer spread over the replicas in runs of equal length; None for a graph without experts."""
    held = experts(original(problem))
    count = Counter(layer for layer, _ in held.values())

    def homes(number: int) -> dict[str, int]:
        return {expert: index * number // count[layer] for expert, (layer, index) in held.items()}

    return _best(problem, evaluate, homes) if held else None


def tables(graph: ComputationGraph) -> dict[str, int]:
    """The bytes of the variables of each layer that looks rows up in a variable."""
    root = graph.output_op[graph.output_root]
    reads = np.flatnonzero((graph.edge_output != CONTROL) & graph.canonical_kind.among(["embedding"])[graph.edge_dst])
    table = root[graph.edge_data[reads]]
    layers = [graph.layer[op] for op in np.unique(table[graph.persistent_bytes[table] > 0]).tolist()]
    return {
        layer: int(graph.persistent_bytes[graph.layer.among([layer])].sum()) for layer in dict.fromkeys(layers) if layer
    }


def experts(graph: ComputationGraph) -> dict[str, tuple[str, int]]:
    """The path of each expert that has a variable: the path of its layer, and its number among the layer's experts."""
    variables = graph.layer.rows(np.flatnonzero(graph.persistent_bytes > 0))
    numbered = {
        match[0]: (match["layer"], int(match["number"])) for match in map(EXPERT.match, variables.present) if match
    }
    numbers: dict[str, list[int]] = defaultdict(list)
    for layer, number in numbered.values():
        numbers[layer].append(number)
    rank = {layer: {number: index for index, number in enumerate(sorted(each))} for layer, each in numbers.items()}
    return {path: (layer, rank[layer][number]) for path, (layer, number) in numbered.items()}


def _best(problem: Problem, evaluate: Evaluator, homes: Callable[[int], dict[str, int]]) -> Proposal:
    """The best of replicas on several numbers of devices; `homes(number)` is the replica of each layer with a home."""
    proposals = []
    for share in shares(problem):
        home = homes(len(share.devices))
        form = replicated(problem, share, "whole", tuple(home))
        device = share.devices[_replica(form.graph, home)].astype(np.int32)
        proposals.append(Proposal(form, Placement(device, "given", turns(form.graph, share))))
    return best_of(proposals, evaluate)


def _replica(graph: ComputationGraph, home: dict[str, int]) -> Int32[np.ndarray, " ops"]:
    """The replica on whose device each op stands: those of a layer with a home, and all in their groups."""
    of_layer = np.full(len(graph.layer.values) + 1, NONE, dtype=np.int32)
    for number, layer in enumerate(graph.layer.values):
        path = re.split("([./])", layer)
        around = ("".join(path[:end]) for end in range(len(path), 0, -2))
        of_layer[number] = next((home[each] for each in around if each in home), NONE)
    near, group = of_layer[graph.layer.index], colocation_closure(graph)
    of_group = np.full(graph.num_ops, NONE, dtype=np.int32)
    np.maximum.at(of_group, group, near)
    return np.where(of_group[group] == NONE, copies_of(graph).replica, of_group[group])
