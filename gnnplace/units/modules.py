"""Modules: the parts of a network that hold parameters, as its framework names them, and the module of every op.

A module is a layer that holds a variable, or one that multiplies with a variable of another layer (a tied head). Its
ops are the ops of its layer, the variables that it holds, and their gradients and updates. A name scope of TensorFlow
inside a module is part of it. All other code (sums of residuals, attention between its projections, the loss) holds no
variable. It runs where its inputs are, as in PyTorch: it belongs to the last module whose results it reads. Its
backward pass belongs to the last module that its gradient goes to, and an input to the first module that reads it.

If no layer holds a variable, every layer is a module. If no op has a layer, every colocation group is a module, named
after its first op.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import no_type_check
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gnnplace.compiled import kernel
from gnnplace.graph import NONE, ComputationGraph, Copies
from gnnplace.units.cells import leader
from gnnplace.units.units import colocation_closure
from gnnplace.units.variables import SCALAR_BYTES, families

MULTIPLIES = ("matmul", "batch_matmul", "conv", "embedding")
HELD = frozenset(("parameter", "buffer", "read", "input", "constant"))
CALLED = ("aten.", "optim.")


@dataclass(frozen=True, eq=False)
class Modules:
    """`module[i]` is the module of op i, an index into `names`.

    Modules are numbered in the order in which their forward passes begin.
    """

    names: tuple[str, ...]
    module: Int32[np.ndarray, " ops"]

    def __post_init__(self) -> None:
        self.module.setflags(write=False)

    @property
    def num_modules(self) -> int:
        return len(self.names)


_modules: WeakKeyDictionary[ComputationGraph, Modules] = WeakKeyDictionary()


def modules(graph: ComputationGraph) -> Modules:
    """The modules of a graph, derived once and kept as long as the graph lives.

    Every op has a module. All ops of a colocation group have the same one.

    >>> import gnnplace as gp
    >>> modules = gp.modules(gp.problem("gpt2", cluster="k40-2").graph)
    >>> modules.num_modules, modules.names[:4], modules.names[-1]
    (76, ('wte', 'wpe', 'h.0.ln_1', 'h.0.attn.c_attn'), 'lm_head')
    """
    if graph not in _modules:
        _modules[graph] = _build(graph)
    return _modules[graph]


def of_pytorch(graph: ComputationGraph) -> bool:
    """Whether PyTorch's front-end made the graph: all ops are ATen calls, updates, or values that these read.

    >>> import gnnplace as gp
    >>> [of_pytorch(gp.problem(name, cluster="k40-2").graph) for name in ("squeezenet", "vgg-16", "resnet-50-openvino")]
    [True, False, False]
    """
    called = [kind for kind in graph.kind.values if kind not in HELD]
    return bool(called) and all(kind.startswith(CALLED) for kind in called)


def _build(graph: ComputationGraph) -> Modules:
    if graph.copies is not None:
        return _of_copies(graph.copies)
    if graph.executed is not None:  # what its runtime keeps together is no module
        return modules(graph.executed.plain)
    group = colocation_closure(graph)
    if not len(graph.layer.values):
        return _numbered(graph, [graph.op_names[label] for label in range(graph.num_ops)], group)
    owner = families(graph, group).owner
    seeds = _seeds(graph, owner)
    return _numbered(graph, graph.layer.values, _spread(graph, seeds)[leader(graph, group)])


def _of_copies(copies: Copies) -> Modules:
    """The modules of a step of several micro-batches: those of one of them, of each replica by itself."""
    one = modules(copies.original)
    names = one.names
    if copies.replicas > 1:
        names = tuple(f"{name}@r{replica}" for replica in range(copies.replicas) for name in one.names)
    return Modules(names, (one.module[copies.source] + copies.replica * one.num_modules).astype(np.int32))


def _seeds(graph: ComputationGraph, owner: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """The module of each op according to its layer and its variable, as the number of a layer.

    `NONE` for ops that belong to no module by themselves. A gradient stays with the layer that computes it, even if the
    variable belongs to another layer (a tied embedding).
    """
    module = _module_of_layer(graph)[graph.layer.index]
    holder = leader(graph, np.where(owner == NONE, np.arange(graph.num_ops), owner))
    computed = graph.phase.among(["backward_data", "backward_weight"]) & (module != NONE)
    return np.where((owner == NONE) | computed, module, module[holder])


def _module_of_layer(graph: ComputationGraph) -> Int64[np.ndarray, " layers_plus_1"]:
    """The module of each layer: the layer itself, an enclosing scope, or `NONE`.

    The last entry is for ops without a layer.
    """
    values = graph.layer.values
    holds = _holding(graph)
    if not holds.any():
        return np.append(np.arange(len(values)), NONE)
    number = {name: index for index, name in enumerate(values) if holds[index]}
    # PyTorch has "/" in a name, and no scopes
    scopes = {value: [value] if of_pytorch(graph) else _around(value) for value in values}
    return np.array(
        [next((number[name] for name in scopes[value] if name in number), NONE) for value in values] + [NONE]
    )


def _holding(graph: ComputationGraph) -> Bool[np.ndarray, " layers"]:
    """True for layers that hold a variable, and for layers with a forward op that multiplies with a variable."""
    stateful = graph.persistent_bytes > SCALAR_BYTES
    uses = np.zeros(graph.num_ops, dtype=bool)
    uses[graph.edge_dst[_reads_variable(graph)]] = True
    uses &= graph.canonical_kind.among(MULTIPLIES) & ~_later(graph)
    layer = graph.layer.index[stateful | uses]
    return np.bincount(layer[layer != NONE], minlength=len(graph.layer.values)) > 0


def _reads_variable(graph: ComputationGraph) -> Bool[np.ndarray, " edges"]:
    """True for edges that carry a variable or a view of one."""
    reads, data = np.zeros(graph.num_edges, dtype=bool), graph.edge_data != NONE
    reads[data] = graph.persistent_bytes[graph.output_op[graph.output_root[graph.edge_data[data]]]] > SCALAR_BYTES
    return reads


def _around(layer: str) -> Iterator[str]:
    """The layer and its enclosing name scopes. Only `/` separates scopes: `h.0` and `h.1` are different modules."""
    parts = layer.split("/")
    for length in range(len(parts), 0, -1):
        yield "/".join(parts[:length])


def _later(graph: ComputationGraph) -> Bool[np.ndarray, " ops"]:
    """True for ops of the backward pass and the update."""
    return graph.phase.among(["backward_data", "backward_weight", "update"])


def _spread(graph: ComputationGraph, seeds: Int64[np.ndarray, " ops"]) -> Int64[np.ndarray, " ops"]:
    """The module of every op, spread from `seeds` along edges.

    A forward op joins the last module whose results it reads; if there is none, the first module that reads its own
    results. Any other op joins the last module that reads its results; if there is none, the last whose results it
    reads. Edges that carry variables, and then control edges, count only for ops that are left. Ops that no edge
    reaches join the first module.
    """
    later, module = _later(graph), seeds.copy()
    rank, position = _begins(graph, seeds, len(graph.layer.values)), _position(graph)
    order = np.argsort(position, kind="stable")
    ends = (graph.edge_src, graph.edge_dst, graph.out_ptr, graph.in_ptr, graph.in_edges)
    data = graph.edge_data != NONE
    for edges in (data & ~_reads_variable(graph), data, np.ones(graph.num_edges, dtype=bool)):
        same = edges & (later[graph.edge_src] == later[graph.edge_dst])
        for allowed in (same, edges):
            _join_sources(order, *ends, allowed, ~later, rank, module)
            _join_readers(order, *ends, allowed, later, rank, module)
            _join_readers(order, *ends, allowed, ~later, -rank, module)
            _join_sources(order, *ends, allowed, later, rank, module)
    return np.where(module == NONE, int(np.argmin(rank)), module)


def _position(graph: ComputationGraph) -> Int64[np.ndarray, " ops"]:
    """The place of each op in the order of the document if that is topological, else in the graph's own order."""
    if (graph.edge_src < graph.edge_dst).all():
        return np.arange(graph.num_ops)
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[graph.order] = np.arange(graph.num_ops)
    return position


def _begins(graph: ComputationGraph, module: Int64[np.ndarray, " ops"], count: int) -> Int64[np.ndarray, " modules"]:
    """When the forward pass of each module begins: at its first kernel.

    A module that only holds variables begins just before their first reader. A module without kernels and readers comes
    last.
    """
    position, forward = 2 * _position(graph), ~_later(graph)
    begins = np.full(count, 2 * graph.num_ops, dtype=np.int64)
    rows = np.flatnonzero(forward & graph.kernel & (module != NONE))
    np.minimum.at(begins, module[rows], position[rows])
    edges = np.flatnonzero(forward[graph.edge_dst] & (module[graph.edge_src] != NONE))
    edges = edges[begins[module[graph.edge_src[edges]]] == 2 * graph.num_ops]
    np.minimum.at(begins, module[graph.edge_src[edges]], position[graph.edge_dst[edges]] - 1)
    return begins


def _numbered(graph: ComputationGraph, names: tuple[str, ...] | list[str], label: Int64[np.ndarray, " ops"]) -> Modules:
    """A module for each label, in the order in which their forward passes begin."""
    used = np.unique(label)
    begins = _begins(graph, label, len(names))
    ordered = used[np.argsort(begins[used], kind="stable")]
    number = np.full(len(names), NONE, dtype=np.int32)
    number[ordered] = np.arange(len(ordered))
    return Modules(tuple(names[module] for module in ordered.tolist()), number[label])


@kernel
@no_type_check
def _join_sources(order, edge_src, edge_dst, out_ptr, in_ptr, in_edges, allowed, wanted, rank, module):
    """In order, each op without a module joins the module of highest rank among its producers."""
    for op in order:
        if wanted[op] and module[op] == -1:
            for place in range(in_ptr[op], in_ptr[op + 1]):
                edge = in_edges[place]
                candidate = module[edge_src[edge]]
                if allowed[edge] and candidate != -1 and (module[op] == -1 or rank[candidate] > rank[module[op]]):
                    module[op] = candidate


@kernel
@no_type_check
def _join_readers(order, edge_src, edge_dst, out_ptr, in_ptr, in_edges, allowed, wanted, rank, module):
    """In reverse order, each op without a module joins the module of highest rank among its readers."""
    for op in order[::-1]:
        if wanted[op] and module[op] == -1:
            for edge in range(out_ptr[op], out_ptr[op + 1]):
                candidate = module[edge_dst[edge]]
                if allowed[edge] and candidate != -1 and (module[op] == -1 or rank[candidate] > rank[module[op]]):
                    module[op] = candidate
