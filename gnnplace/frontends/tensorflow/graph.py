"""Reads a whole TensorFlow training step as a graph: forward, backward and update, pruned to the ops that fetches need.

Ops keep their names and stand in order of creation. Each variable is read once; gradients of look-ups stay sparse.
`costs` has the costs, `roles` the layers and phases. Ops that use a resource (a variable or a slot), or ask for
colocation with it (`_class`), are in its colocation group. Ops that only read shapes or fold small constants have no
kernel. Ops on string tensors are allowed on CPUs only.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import tensorflow as tf

from gnnplace.frontends.tensorflow import costs
from gnnplace.frontends.tensorflow.kinds import ALIASES, MAX_FOLDED_ELEMENTS, NO_KERNEL, SHAPE_READERS, canonical_kind
from gnnplace.frontends.tensorflow.pruned import PrunedStep, prune
from gnnplace.frontends.tensorflow.roles import Roles
from gnnplace.graph import ComputationGraph, Op, Output


def read_step(
    graph: tf.Graph | tf.compat.v1.GraphDef, fetches: Sequence[str], name: str, blocks: Mapping[str, int] | None = None
) -> ComputationGraph:
    """The graph, named `name`, of the step that computes `fetches` (tensors `loss:0`, ops `train`).

    `blocks` maps layer prefixes (whole scopes) to the number of a repeated block; the longest prefix of a layer counts.
    Ops of unknown kinds have no flops, so their bytes alone cost time; `ComputationGraph.uncounted` lists them.
    Raises ValueError for unknown fetches, control flow, function calls, unknown dimensions, and cycles.
    """
    step = prune(_graph(graph), fetches)
    roles, folded, groups = Roles(step), _folded(step), _colocation(step)
    ops = [_op(step, roles, i, i in folded, groups[i], blocks or {}) for i in range(len(step.ops))]
    return ComputationGraph.from_ops(name, ops, step.edges())


def _graph(graph: tf.Graph | tf.compat.v1.GraphDef) -> tf.Graph:
    if isinstance(graph, tf.Graph):
        return graph
    imported = tf.Graph()
    with imported.as_default():
        tf.graph_util.import_graph_def(graph, name="")
    return imported


def _op(step: PrunedStep, roles: Roles, i: int, folded: bool, group: str | None, blocks: Mapping[str, int]) -> Op:
    op, layer = step.ops[i], roles.layer[i]
    strings = any(tensor.dtype == tf.string for tensor in (*op.inputs, *op.outputs))
    return Op(
        name=op.name,
        kind=op.type,
        outputs=tuple(_output(step, i, k) for k in range(len(op.outputs))),
        flops=0 if folded else costs.flops(op),
        bytes_accessed=costs.bytes_accessed(op),
        persistent_bytes=costs.persistent_bytes(op),
        kernel=not folded and op.type not in NO_KERNEL,
        allowed=("cpu",) if strings else None,
        colocation=group,
        layer=layer,
        phase=roles.phase[i],
        block=_block(layer, blocks),
        time_step=roles.time_step[i],
        canonical_kind="shape" if folded else canonical_kind(op.type),
    )


def _output(step: PrunedStep, i: int, k: int) -> Output:
    op = step.ops[i]
    return Output(
        bytes=costs.bytes_of(op.outputs[k]),
        shape=costs.shape_of(op.outputs[k]),
        dtype=op.outputs[k].dtype.name,
        alias_of=step.inputs[i][k if op.type == "IdentityN" else 0] if op.type in ALIASES else None,
        is_result=(i, k) in step.results,
    )


def _block(layer: str | None, blocks: Mapping[str, int]) -> int | None:
    scopes = layer.split("/") if layer else []
    prefixes = ("/".join(scopes[:length]) for length in range(len(scopes), 0, -1))
    return next((blocks[prefix] for prefix in prefixes if prefix in blocks), None)


def _folded(step: PrunedStep) -> set[int]:
    """The ops that compute small results from shapes and constants alone, which the host does once."""
    static: set[int] = set()  # ops whose results shapes and constants alone decide
    folded: set[int] = set()
    for i in step.order:
        op, sources = step.ops[i], step.sources[i]
        small = all(tensor.dtype != tf.resource and _small(tensor) for tensor in op.outputs)
        if op.type in SHAPE_READERS or op.type == "Const":
            static.add(i)
        elif sources and op.outputs and small and static.issuperset(sources) and not op.op_def.is_stateful:
            static.add(i)
            folded.add(i)
    return folded


def _small(tensor: tf.Tensor) -> bool:
    return math.prod(costs.shape_of(tensor)) <= MAX_FOLDED_ELEMENTS


def _colocation(step: PrunedStep) -> list[str | None]:
    """The colocation group of each op, named after its first op; shared resources and `_class` join ops."""
    leader = list(range(len(step.ops)))

    def find(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    for i, j in _colocated_pairs(step):
        first, second = sorted((find(i), find(j)))
        leader[second] = first
    roots = [find(i) for i in range(len(leader))]
    members = Counter(roots)
    return [step.ops[root].name if members[root] > 1 else None for root in roots]


def _colocated_pairs(step: PrunedStep) -> list[tuple[int, int]]:
    pairs = []
    for i in range(len(step.ops)):
        pairs += [(src, i) for src, output in step.inputs[i] if step.ops[src].outputs[output].dtype == tf.resource]
        pairs += [(other, i) for other in step.colocated[i]]
    return pairs
