"""Which ops of a step run once a step and which once for each micro-batch (docs/execution-model.md#micro-batches).

Once run the variables, the update phase, and what depends on variables alone: reads, casts and transposes of weights.
State that the forward pass updates, such as the running means of a batch normalization, is repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
from jaxtyping import Bool, Int64

from gnnplace.graph import CONTROL, NONE, ComputationGraph

SCALAR_BYTES = 8  # a tensor this small is sent from every copy, not summed; rows are concatenated, however few
BACKWARD = ("backward_data", "backward_weight")


def runs_once(
    graph: ComputationGraph, shared: Collection[str], computing: Bool[np.ndarray, " ops"]
) -> Bool[np.ndarray, " ops"]:
    """True for ops that run once a step; `shared` are names of inputs that all micro-batches read.

    `computing` ops held parameters that were taken from them: they are repeated though they may read nothing else.

    Raises ValueError for a graph whose phases don't tell, for a name in `shared` of no input, and for an op that reads
    both what an update wrote and tensors of the forward pass.
    """
    _require_phases(graph)
    neighbours = _Neighbours(graph)
    variable, changing = variables(graph), np.zeros(graph.num_ops, dtype=bool)
    constant = _constants(graph, variable, neighbours)
    update = graph.phase.among(["update"]) & ~variable
    shared_inputs = _shared_inputs(graph, shared)
    for _ in range(2):  # what is derived depends on what running state is, and the other way round
        repeated = computing | _kernels_on(graph, changing)
        once = variable | _derived(graph, variable, constant, repeated, neighbours) | shared_inputs
        running = _running(graph, ~(once | constant | update), update, neighbours)
        writers, changed = written(graph).T
        changing[changed[running[writers] | ~update[writers]]] = True
    update &= ~running
    behind = _behind(update & ~constant & (np.diff(graph.in_ptr) > 0), neighbours)
    once |= update | behind
    once |= _read_by(once, constant, neighbours)
    _refuse_passes_behind(graph, behind & ~graph.phase.among(["update"]), ~once)
    return once


class _Neighbours:
    """The distinct predecessors and successors of each op in topological order, all of them and those by data alone."""

    def __init__(self, graph: ComputationGraph) -> None:
        self.order: list[int] = graph.order.tolist()
        data = graph.edge_output != CONTROL
        self.before, self.after = _lists(graph, np.ones(graph.num_edges, dtype=bool))
        self.inputs, self.readers = _lists(graph, data)


def _lists(graph: ComputationGraph, edges: Bool[np.ndarray, " edges"]) -> tuple[list[list[int]], list[list[int]]]:
    before: list[list[int]] = [[] for _ in range(graph.num_ops)]
    after: list[list[int]] = [[] for _ in range(graph.num_ops)]
    for src, dst in zip(graph.edge_src[edges].tolist(), graph.edge_dst[edges].tolist(), strict=True):
        before[dst].append(src)
        after[src].append(dst)
    return before, after


def _require_phases(graph: ComputationGraph) -> None:
    if not graph.phase.values:
        raise ValueError("phase: no op of the graph has one, so nothing tells what runs once a step")
    if graph.phase.among(BACKWARD).any() and not graph.phase.among(["update"]).any():
        raise ValueError(
            "phase: the graph has a backward pass and no op of phase 'update', so nothing tells what runs once a step"
        )


def variables(graph: ComputationGraph) -> Bool[np.ndarray, " ops"]:
    """True for sources with persistent bytes."""
    return (graph.persistent_bytes > 0) & (np.diff(graph.in_ptr) == 0)


def rows(graph: ComputationGraph) -> Bool[np.ndarray, " outputs"]:
    """True for outputs that may be rows: those with dimensions or, where these are unknown, of more than 8 bytes."""
    return (graph.output_rank > 0) | (graph.output_bytes > SCALAR_BYTES)


def _constants(
    graph: ComputationGraph, variable: Bool[np.ndarray, " ops"], neighbours: _Neighbours
) -> Bool[np.ndarray, " ops"]:
    """True for ops without a kernel that depend on nothing but the graph: constants, and sizes computed from them."""
    varies = variable | graph.kernel | graph.canonical_kind.among(["input", "random", "variable"])
    constant = np.zeros(graph.num_ops, dtype=bool)
    for op in neighbours.order:
        constant[op] = not varies[op] and all(constant[src] for src in neighbours.before[op])
    return constant


def _derived(
    graph: ComputationGraph,
    variable: Bool[np.ndarray, " ops"],
    constant: Bool[np.ndarray, " ops"],
    repeated: Bool[np.ndarray, " ops"],
    neighbours: _Neighbours,
) -> Bool[np.ndarray, " ops"]:
    """True for ops that depend on variables and constants alone, are not random, and write no variable."""
    excluded = variable | constant | repeated | graph.canonical_kind.among(["random"]) | graph.phase.among(["update"])
    excluded[written(graph)[:, 0]] = True
    derived = np.zeros(graph.num_ops, dtype=bool)
    for op in neighbours.order:
        if not excluded[op]:
            fixed = all(variable[src] or derived[src] or constant[src] for src in neighbours.before[op])
            derived[op] = fixed and any(variable[src] or derived[src] for src in neighbours.inputs[op])
    return derived


def _kernels_on(graph: ComputationGraph, variable: Bool[np.ndarray, " ops"]) -> Bool[np.ndarray, " ops"]:
    """True for ops with a kernel that read one of these variables or an alias of it."""
    reads, _ = _reads(graph, variable)
    readers = np.zeros(graph.num_ops, dtype=bool)
    readers[graph.edge_dst[reads]] = True
    return readers & graph.kernel


def written(graph: ComputationGraph) -> Int64[np.ndarray, "writes 2"]:
    """The ops that write a variable in place, each with its variable.

    Such an op has a kernel and an output that is an alias of the variable; or it is an update that reads the variable
    and has no output; or it has a kernel, reads a variable of kind `buffer` and is in its colocation group, as
    PyTorch's batch normalization is in that of its running mean.
    """
    variable = variables(graph)
    root = graph.output_op[graph.output_root].astype(np.int64)
    in_place = np.flatnonzero((graph.output_alias != NONE) & graph.kernel[graph.output_op] & variable[root])
    aliasing = np.stack([graph.output_op[in_place].astype(np.int64), root[in_place]], axis=1)
    edges, read = _reads(graph, variable)
    reader, group = graph.edge_dst[edges].astype(np.int64), graph.colocation.index
    silent = (graph.phase.among(["update"]) & (np.diff(graph.output_ptr) == 0))[reader]
    beside = graph.kernel[reader] & (group[reader] == group[read]) & (group[read] != NONE)
    assigning = np.stack([reader, read], axis=1)[silent | (beside & graph.kind.among(["buffer"])[read])]
    return np.unique(np.concatenate([aliasing, assigning]), axis=0)


def _reads(
    graph: ComputationGraph, variable: Bool[np.ndarray, " ops"]
) -> tuple[Int64[np.ndarray, " edges"], Int64[np.ndarray, " edges"]]:
    """The edges that carry one of these variables, or an alias of it, and the variable of each."""
    data = np.flatnonzero(graph.edge_output != CONTROL)
    root = graph.output_op[graph.output_root[graph.edge_data[data]]].astype(np.int64)
    return data[variable[root]], root[variable[root]]


def _running(
    graph: ComputationGraph,
    repeated: Bool[np.ndarray, " ops"],
    update: Bool[np.ndarray, " ops"],
    neighbours: _Neighbours,
) -> Bool[np.ndarray, " ops"]:
    """True for updates of the forward pass: they and all that they feed depend on no gradient, but on activations."""
    backward = graph.phase.among(BACKWARD)
    from_forward, from_backward = repeated & ~backward, repeated & backward
    for op in neighbours.order:
        if update[op]:
            from_forward[op] = any(from_forward[src] for src in neighbours.inputs[op])
            from_backward[op] = any(from_backward[src] for src in neighbours.inputs[op])
    running = np.zeros(graph.num_ops, dtype=bool)
    for op in reversed(neighbours.order):
        if update[op] and not from_backward[op] and not graph.persistent_bytes[op]:
            fed = [dst for dst in neighbours.readers[op] if update[dst]]
            running[op] = all(running[dst] for dst in fed) and bool(from_forward[op] or fed)
    return running


def _behind(computed: Bool[np.ndarray, " ops"], neighbours: _Neighbours) -> Bool[np.ndarray, " ops"]:
    """True for these ops and for all that read what they computed."""
    behind = computed.copy()
    for op in neighbours.order:
        behind[op] |= any(behind[src] for src in neighbours.inputs[op])
    return behind


def _refuse_passes_behind(
    graph: ComputationGraph, behind: Bool[np.ndarray, " ops"], repeated: Bool[np.ndarray, " ops"]
) -> None:
    """Raises ValueError if an op behind an update computes with a tensor of a micro-batch."""
    large = (graph.edge_bytes > SCALAR_BYTES) & repeated[graph.edge_src]
    passes = np.flatnonzero(large & (behind & graph.kernel)[graph.edge_dst])
    if len(passes):
        op, read = int(graph.edge_dst[passes[0]]), int(graph.edge_src[passes[0]])
        raise ValueError(
            f"op {graph.op_names[op]!r} reads what an update computed and {graph.op_names[read]!r} of a micro-batch; a "
            "step with a pass behind an update can't be cut into micro-batches"
        )


def _shared_inputs(graph: ComputationGraph, shared: Collection[str]) -> Bool[np.ndarray, " ops"]:
    """True for inputs that no micro-batch has of its own: scalars, and those in `shared`."""
    inputs = graph.canonical_kind.among(["input"]) & (np.diff(graph.in_ptr) == 0)
    named = {graph.op_names[op]: op for op in np.flatnonzero(inputs).tolist()}
    if unknown := [name for name in shared if name not in named]:
        raise ValueError(f"shared: {unknown[0]!r} is no input of the graph; those are {', '.join(named) or 'none'}")
    is_shared = np.zeros(graph.num_ops, dtype=bool)
    is_shared[[named[name] for name in shared]] = True
    has_dimensions = np.zeros(graph.num_ops, dtype=bool)
    has_dimensions[graph.output_op[graph.output_rank != 0]] = True
    return is_shared | (inputs & ~has_dimensions)


def _read_by(
    once: Bool[np.ndarray, " ops"], constant: Bool[np.ndarray, " ops"], neighbours: _Neighbours
) -> Bool[np.ndarray, " ops"]:
    """True for constants that an op reads which runs once, and for the constants that these depend on."""
    read = np.zeros(len(once), dtype=bool)
    for op in reversed(neighbours.order):
        if constant[op]:
            read[op] = any(once[dst] or read[dst] for dst in neighbours.after[op])
    return read


def running_order(graph: ComputationGraph, repeated: Bool[np.ndarray, " ops"]) -> Iterator[tuple[int, int, int]]:
    """Two repeated ops and a variable: the second op for a micro-batch follows the first for the micro-batch before.

    The first writes the variable, which the second reads or, so that it reads what its own micro-batch wrote, the first
    reads what was written and the second writes.
    """
    writers: dict[int, list[int]] = {}
    for writer, variable in written(graph).tolist():
        if repeated[writer]:
            writers.setdefault(variable, []).append(writer)
    is_changed = np.zeros(graph.num_ops, dtype=bool)
    is_changed[list(writers)] = True
    edges, read = _reads(graph, is_changed)
    after = _follow_writers(graph, writers)
    rows = np.stack([graph.edge_src[edges], graph.edge_dst[edges], read], axis=1).tolist()
    for source, reader, variable in rows:
        if repeated[reader]:
            yield from ((writer, reader, variable) for writer in writers[variable])
            if source in after[variable]:
                yield from ((reader, writer, variable) for writer in writers[variable])


def _follow_writers(graph: ComputationGraph, writers: dict[int, list[int]]) -> dict[int, set[int]]:
    """By variable the ops that show it as it is after a write: its writers, and the aliases of it that follow them."""
    after = {variable: set(ops) for variable, ops in writers.items()}
    root, shown = graph.output_op[graph.output_root], dict[int, set[int]]()
    for output in np.flatnonzero(np.isin(root, list(writers))).tolist():
        shown.setdefault(int(graph.output_op[output]), set()).add(int(root[output]))
    for op in sorted(shown, key=graph.level.__getitem__):
        before = graph.edge_src[graph.in_edges[graph.in_ptr[op] : graph.in_ptr[op + 1]]].tolist()
        for variable in shown[op]:
            if not after[variable].isdisjoint(before):
                after[variable].add(op)
    return after
