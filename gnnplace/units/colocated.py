"""Colocation groups by the rules of ColocRL (Mirhoseini et al., ICML 2017, section 3.3).

1. What the framework keeps together stays together.
2. If only group Y reads what group X puts out, X joins Y. Groups are ops to the next round of this rule, until no group
   has a sole reader.
3. The groups of one step of a recurrent layer join, and those of one branch of a network without time steps, gradients
   included. The paper names them by hand for each model ("each LSTM cell", "each branch"); here the columns `layer` and
   `time_step` of the graph do.

A control edge carries no output, so it reads none. Groups join only where the same devices are allowed for both. The
second rule contracts a chain to one group, and so most graphs of inference to a few: the paper places training steps,
whose outputs are read again by gradients.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from gnnplace.graph import CONTROL, NONE, ComputationGraph
from gnnplace.units.cells import leader, legality, scopes
from gnnplace.units.numbers import row_numbers
from gnnplace.units.variables import join, merged


def with_sole_readers(graph: ComputationGraph, group: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """Labels after the second rule; `group` is the colocation closure.

    The order in which groups join does not matter.
    """
    label, rule, data = group, legality(graph, group), graph.edge_output != CONTROL
    while True:
        ends = label[graph.edge_src[data]], label[graph.edge_dst[data]]
        src, dst = (end[ends[0] != ends[1]] for end in ends)
        pairs = np.unique(src * graph.num_ops + dst)
        read, reader = pairs // graph.num_ops, pairs % graph.num_ops
        sole = (np.bincount(read, minlength=graph.num_ops)[read] == 1) & (rule[read] == rule[reader])
        if not sole.any():
            return label
        label = join(label, read[sole], reader[sole])


def by_layer(graph: ComputationGraph, group: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """Labels after the third rule.

    A group is of the layer and the time step of its leader; without a layer it stays as it is.
    """
    columns = np.stack([_scope(graph), graph.time_step.astype(np.int64), legality(graph, group)], axis=1)
    cell = columns[leader(graph, group)]
    return merged(group, np.where(cell[:, 0] == NONE, NONE, row_numbers(cell)))


def _scope(graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    """The layer of each op where the layer recurs; else the scope around it: `mixed_0/branch_1/0` and
    `mixed_0/branch_1/1` are one.
    """
    layer = graph.layer.index
    recurs = np.bincount(layer[layer != NONE], graph.time_step[layer != NONE] != NONE, len(graph.layer.values)) > 0
    names = [scopes(name) for name in graph.layer.values]
    around = [name if again or len(name) == 1 else name[:-1] for name, again in zip(names, recurs, strict=True)]
    number = {scope: index for index, scope in enumerate(dict.fromkeys(around))}
    return np.array([number[scope] for scope in around] + [NONE], dtype=np.int64)[layer]
