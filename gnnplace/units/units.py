"""Units: sets of ops that are placed together. Each unit consists of whole colocation groups.

`ops` are the colocation groups alone. `weights` joins a variable with its state and with the gradients and sums that
only its update needs, and joins the users of a variable by phase and block. `coarse` has at most 1,000 cells of layer,
time step and phase. `readers` joins an output with its only reader, again and again, and `colocated` these by layer and
time step, as ColocRL does. All of them depend on the graph alone. Contracting units may create cycles, so orders and
levels come from the op graph.

`colocated` are the colocation groups by the rules of ColocRL (Mirhoseini et al., ICML 2017, section 3.3).

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
    """Outputs that go from a unit to another, sorted by source, destination and
    output; output -1 with 0 bytes stands for control edges.
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
    """What goes between different units: each output once for each unit that
    reads it, and one row for all control edges of a pair.
    """
    src, dst = units.unit[graph.edge_src].astype(np.int64), units.unit[graph.edge_dst].astype(np.int64)
    rows = np.stack([src, dst, graph.edge_data, graph.edge_bytes], axis=1)[src != dst]
    rows = rows[np.lexsort(rows.T[2::-1])]
    rows = rows[_differs(rows[:, :3])] if len(rows) else rows
    return UnitTransfers(*rows.T)


def group_edges(sent: UnitTransfers, group: Int64[np.ndarray, " units"], groups: int) -> UnitEdges:
    """The edges between groups of units, `group[u]` being that of unit u:
    an output counts once for each group that reads it.
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
    """The persistent bytes of each unit's ops and all that they produce, which need not be there at once."""
    return persistent_bytes(graph, units) + output_bytes(graph, units)


def kept_bytes(graph: ComputationGraph, units: Units) -> Int64[np.ndarray, " units"]:
    """The bytes that each unit holds for most of a step: what is persistent, results, and outputs that a later pass
    reads.

    An output of the forward pass that the backward pass or an update reads is kept from one pass to the other. In a
    graph without phases every output is.
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
    """True where a device is allowed for every op of a unit. Raises ValueError where a unit is allowed on no device."""
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
