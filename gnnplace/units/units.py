"""Units: sets of ops that are placed together. Each unit consists of whole colocation groups.

- `ops`: the colocation groups.
- `weights`: a variable, its state, and the gradients and sums that only its update needs are one unit. The users of a
  variable are a unit for each phase and block; copies that may stand on devices of their own, for each micro-batch.
- `coarse`: at most 1,000 cells of layer, time step and phase.
- `colocated`: the colocation groups of ColocRL (Mirhoseini et al., ICML 2017, section 3.3).
- `readers`: the groups after the first two rules of ColocRL.

All units depend on the graph alone. Contracting units may create cycles, so orders and levels come from the op graph.

The rules of ColocRL:

1. The colocation groups of the framework stay together.
2. If only group Y reads the outputs of group X, X joins Y. This repeats with the merged groups until no group has a
   sole reader.
3. The groups of one time step of a recurrent layer join, gradients included. In a network without time steps, the
   groups of one branch join. The paper lists these groups by hand for each model ("each LSTM cell", "each branch");
   here they follow from the graph's columns `layer` and `time_step`.

A control edge carries no output, so it does not count as a read. Two groups join only if the same devices are allowed
for both. The second rule contracts a chain to one group, and so most inference graphs to a few; the paper places
training steps, in which gradients read outputs again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, assert_never
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.graph import CONTROL, NONE, ComputationGraph
from gnnplace.problems import Problem
from gnnplace.units import cells, variables
from gnnplace.units.cells import leader, legality, scopes
from gnnplace.units.numbers import row_numbers
from gnnplace.units.variables import join, merged

UnitsName = Literal["ops", "weights", "coarse", "readers", "colocated"]


@dataclass(frozen=True, eq=False)
class Units:
    """`unit[i]` is the unit of op i. Units are numbered by their first ops in the topological order of the graph."""

    name: str
    unit: Int32[np.ndarray, " ops"]
    num_units: int

    def __post_init__(self) -> None:
        assert self.num_units == int(self.unit.max()) + 1 and self.unit.min() == 0
        self.unit.setflags(write=False)


class UnitEdges(NamedTuple):
    """Edges between different units, sorted and distinct.

    An output counts once for each unit that reads it; a control edge has 0 bytes.
    """

    src: Int32[np.ndarray, " edges"]
    dst: Int32[np.ndarray, " edges"]
    bytes: Int64[np.ndarray, " edges"]


class UnitTransfers(NamedTuple):
    """Outputs that a unit sends to another, sorted by source, destination and output.

    Output -1 with 0 bytes stands for the control edges of a pair.
    """

    src: Int64[np.ndarray, " transfers"]
    dst: Int64[np.ndarray, " transfers"]
    output: Int64[np.ndarray, " transfers"]
    bytes: Int64[np.ndarray, " transfers"]


_units: WeakKeyDictionary[ComputationGraph, dict[UnitsName, Units]] = WeakKeyDictionary()


def units(graph: ComputationGraph, name: UnitsName) -> Units:
    """The units `name` of a graph, built once and kept as long as the graph lives."""
    by_name = _units.setdefault(graph, {})
    if name not in by_name:
        by_name[name] = _build(graph, name)
    return by_name[name]


def _build(graph: ComputationGraph, name: UnitsName) -> Units:
    group = colocation_closure(graph)
    match name:
        case "ops":
            label = group
        case "weights":
            label = variables.with_their_users(graph, group)
        case "coarse":
            label = cells.coarse(graph, group)
        case "readers":
            label = with_sole_readers(graph, group)
        case "colocated":
            label = by_layer(graph, with_sole_readers(graph, group))
        case _:
            assert_never(name)
    return numbered(graph, name, label)


def colocation_closure(graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    """A label for each op: the lowest op index of its colocation group, or its own index."""
    label = np.arange(graph.num_ops, dtype=np.int64)
    members = np.flatnonzero(graph.colocation.index != NONE)
    first = np.full(len(graph.colocation.values), graph.num_ops, dtype=np.int64)
    np.minimum.at(first, graph.colocation.index[members], members)
    label[members] = first[graph.colocation.index[members]]
    return label


def expand(units: Units, device_of_unit: Int32[np.ndarray, "*samples units"]) -> Int32[np.ndarray, "*samples ops"]:
    """The device of every op, from the device of every unit."""
    return np.take(device_of_unit, units.unit, axis=-1)


def unit_edges(graph: ComputationGraph, units: Units) -> UnitEdges:
    """The edges of the graph between different units, with their bytes."""
    sent = unit_transfers(graph, units)
    if not len(sent.src):
        return UnitEdges(sent.src.astype(np.int32), sent.dst.astype(np.int32), sent.bytes)
    start = np.flatnonzero(_differs(np.stack([sent.src, sent.dst], axis=1)))
    return UnitEdges(
        sent.src[start].astype(np.int32), sent.dst[start].astype(np.int32), np.add.reduceat(sent.bytes, start)
    )


def unit_transfers(graph: ComputationGraph, units: Units) -> UnitTransfers:
    """The transfers between different units: each output once for each unit that reads it.

    All control edges of a pair are one row.
    """
    src, dst = units.unit[graph.edge_src].astype(np.int64), units.unit[graph.edge_dst].astype(np.int64)
    rows = np.stack([src, dst, graph.edge_data, graph.edge_bytes], axis=1)[src != dst]
    rows = rows[np.lexsort(rows.T[2::-1])]
    rows = rows[_differs(rows[:, :3])] if len(rows) else rows
    return UnitTransfers(*rows.T)


def group_edges(sent: UnitTransfers, group: Int64[np.ndarray, " units"], groups: int) -> UnitEdges:
    """The edges between groups of units; `group[u]` is the group of unit u.

    An output counts once for each group that reads it.
    """
    src, dst = group[sent.src], group[sent.dst]
    outputs = int(sent.output.max(initial=NONE)) + 2
    key = ((src * groups + dst) * outputs + sent.output + 1)[src != dst]
    distinct, first = np.unique(key, return_index=True)
    pair, start = np.unique(distinct // outputs, return_index=True)
    carried = np.add.reduceat(sent.bytes[src != dst][first], start) if len(pair) else np.zeros(0, np.int64)
    return UnitEdges((pair // groups).astype(np.int32), (pair % groups).astype(np.int32), carried)


def work_ns(problem: Problem, units: Units) -> Int64[np.ndarray, "units devices"]:
    """The total time of each unit's ops on every device, in ns."""
    work = np.zeros((units.num_units, problem.num_devices), dtype=np.int64)
    np.add.at(work, units.unit, problem.time_ns)
    return work


def persistent_bytes(graph: ComputationGraph, units: Units) -> Int64[np.ndarray, " units"]:
    """The total persistent bytes of each unit's ops."""
    held = np.zeros(units.num_units, dtype=np.int64)
    np.add.at(held, units.unit, graph.persistent_bytes)
    return held


def output_bytes(graph: ComputationGraph, units: Units) -> Int64[np.ndarray, " units"]:
    """The total bytes of all buffers that each unit's ops produce; aliases don't count."""
    produced = np.zeros(units.num_units, dtype=np.int64)
    np.add.at(produced, units.unit[graph.output_op], np.where(graph.output_alias == NONE, graph.output_bytes, 0))
    return produced


def held_bytes(graph: ComputationGraph, units: Units) -> Int64[np.ndarray, " units"]:
    """The persistent bytes of each unit's ops and the bytes of all their outputs, even if these do not live at once."""
    return persistent_bytes(graph, units) + output_bytes(graph, units)


def kept_bytes(graph: ComputationGraph, units: Units) -> Int64[np.ndarray, " units"]:
    """The bytes that each unit holds for most of a step: persistent bytes, results, outputs that a later pass reads.

    An output of the forward pass that the backward pass or an update reads is kept from one pass to the other. In a
    graph without phases every output counts as kept.
    """
    owns_buffer, forward = graph.output_alias == NONE, graph.phase.among(["forward"])
    kept = graph.output_is_result.copy()
    read = np.flatnonzero(graph.edge_data != NONE)
    later = read[forward[graph.edge_src[read]] & ~forward[graph.edge_dst[read]]]
    kept[graph.output_root[graph.edge_data[later]]] = True
    if not forward.any():
        kept[:] = True
    held = persistent_bytes(graph, units)
    np.add.at(held, units.unit[graph.output_op[owns_buffer & kept]], graph.output_bytes[owns_buffer & kept])
    return held


def allowed(problem: Problem, units: Units) -> Bool[np.ndarray, "units devices"]:
    """True if a device is allowed for every op of a unit. Raises ValueError if a unit is allowed on no device."""
    legal = np.ones((units.num_units, problem.num_devices), dtype=bool)
    op, device = np.nonzero(~problem.allowed)
    legal[units.unit[op], device] = False
    if not legal.any(axis=1).all():
        name = problem.graph.op_names[int(np.flatnonzero(units.unit == np.argmin(legal.any(axis=1)))[0])]
        raise ValueError(
            f"op {name!r}: no device of {problem.cluster.name} is allowed for it and for all ops of its unit"
        )
    return legal


def numbered(graph: ComputationGraph, name: str, label: Int64[np.ndarray, " ops"]) -> Units:
    """Units of ops with equal labels, numbered by their first ops in topological order."""
    _, first, index = np.unique(label[graph.order], return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int32)
    number[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    unit = np.empty(graph.num_ops, dtype=np.int32)
    unit[graph.order] = number[index]
    return Units(name, unit, len(first))


def _differs(rows: Int64[np.ndarray, "rows columns"]) -> Bool[np.ndarray, " rows"]:
    """True for each row that differs from the row before it."""
    return np.concatenate([[True], (rows[1:] != rows[:-1]).any(axis=1)])


def with_sole_readers(graph: ComputationGraph, group: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """Labels after the second rule of ColocRL; `group` is the colocation closure.

    The result does not depend on the order in which groups join.
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
    """Labels after the third rule of ColocRL.

    A group has the layer and the time step of its leader. A group without a layer joins none.
    """
    columns = np.stack([_scope(graph), graph.time_step.astype(np.int64), legality(graph, group)], axis=1)
    cell = columns[leader(graph, group)]
    return merged(group, np.where(cell[:, 0] == NONE, NONE, row_numbers(cell)))


def _scope(graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    """A number for the layer of each op, if the layer recurs in time, or else for its enclosing scope.

    So `mixed_0/branch_1/0` and `mixed_0/branch_1/1` have the same number, that of their branch.
    """
    layer = graph.layer.index
    recurs = np.bincount(layer[layer != NONE], graph.time_step[layer != NONE] != NONE, len(graph.layer.values)) > 0
    paths = [scopes(name) for name in graph.layer.values]
    branches = [path if again or len(path) == 1 else path[:-1] for path, again in zip(paths, recurs, strict=True)]
    number = {branch: index for index, branch in enumerate(dict.fromkeys(branches))}
    return np.array([number[branch] for branch in branches] + [NONE], dtype=np.int64)[layer]
