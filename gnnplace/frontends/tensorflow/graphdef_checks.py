"""Checks of a GraphDef before TensorFlow reads it (counts, names, cycles, sizes, ops that open files), and its results.

Every function raises ValueError with one line that names the op and the rule.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence

from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto
from tensorflow.python.framework import op_def_registry

from gnnplace.formats.strict_json import shown
from gnnplace.frontends.tensorflow.calls import MAX_NODES, num_tensors
from gnnplace.frontends.tensorflow.kinds import writes_variable
from gnnplace.frontends.tensorflow.roles import GRADIENT_SCOPE
from gnnplace.graph import MAX_BYTES

MAX_INPUTS = 5_000_000
MAX_RANK = 256
MOST_NAMED = 8
# Kinds that open files or run others' code: a step has none, and shape inference must not execute them.
FOREIGN = (
    "ReadFile", "WriteFile", "MatchingFiles", "PyFunc", "PyFuncStateless", "EagerPyFunc", "LoadAndRemapMatrix",
    "DebugIdentityV2",
)  # fmt: skip
# Kinds whose outputs, if any, are no results of a step: control, checkpoints, and values that need no computation.
SERVICE = (
    "NoOp", "Assert", "PrintV2", "Save", "SaveV2", "SaveSlices", "Restore", "RestoreV2", "MergeV2Checkpoints",
    "ShardedFilename", "VarHandleOp", "VarIsInitializedOp", "ReadVariableOp", "Placeholder", "Const",
)  # fmt: skip


def check_graph(graph: GraphDef) -> None:
    """Checks a graph from a file: counts, names, inputs, kinds, cycles, the sizes of constants and variables."""
    if not graph.node:
        raise ValueError("graph: has no nodes; is this a GraphDef?")
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    if (count := sum(map(len, bodies))) > MAX_NODES:
        raise ValueError(f"graph: {count} nodes are more than {MAX_NODES}")
    if (count := sum(len(node.input) for body in bodies for node in body)) > MAX_INPUTS:
        raise ValueError(f"graph: its nodes name {count} inputs, which are more than {MAX_INPUTS}")
    for body in bodies:
        for node in body:
            _check_node(node)
    check_names(graph)


def check_names(graph: GraphDef) -> None:
    """Checks that names are unique, inputs exist and there is no cycle."""
    index: dict[str, int] = {}
    for number, node in enumerate(graph.node):
        if index.setdefault(node.name, number) != number:
            raise ValueError(f"{described(node)}: there are two of this name")
    sources = [[_source(node, name, index) for name in node.input] for node in graph.node]
    waiting = [len(names) for names in sources]
    consumers: list[list[int]] = [[] for _ in sources]
    for number, names in enumerate(sources):
        for source in names:
            consumers[source].append(number)
    ready = deque(number for number, count in enumerate(waiting) if not count)
    while ready:
        for consumer in consumers[ready.popleft()]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                ready.append(consumer)
    if any(waiting):
        raise ValueError(f"{described(graph.node[_on_cycle(waiting, sources)])}: takes what it makes itself: a cycle")


def results(graph: GraphDef) -> list[str]:
    """The results of a graph: the tensors of all nodes whose data no other node reads.

    Raises ValueError if the graph writes variables or has no result; then the user has to name fetches.
    """
    # a name as a data input; a control input ("^name") does not make a node's data used
    read = {name.partition(":")[0] for node in graph.node for name in node.input}
    ends = [node for node in graph.node if node.name not in read]
    tensors = [f"{node.name}:{index}" for node in ends if node.op not in SERVICE for index in range(_num_outputs(node))]
    writers = [node for node in graph.node if writes_variable(node.op)]
    if tensors and not writers:
        return tensors
    inputs = {name.removeprefix("^") for node in graph.node for name in node.input}
    steps = [node.name for node in ends if node.op == "NoOp" and node.name not in inputs]
    candidates = [name for name in (*tensors, *steps) if not GRADIENT_SCOPE.search(name)]
    more = f" and {len(candidates) - MOST_NAMED} more" if len(candidates) > MOST_NAMED else ""
    named = ", ".join(candidates[:MOST_NAMED]) + more
    why = (
        f"{len(writers)} ops write variables, so it is ambiguous what one step does"
        if writers
        else "nothing in it is a result"
    )
    raise ValueError(
        f"graph: {why}; say what the step computes by --fetch NAME, once for each; it ends in {named or 'nothing'}"
    )


def described(node: NodeDef) -> str:
    """The node's name and kind, for messages."""
    return f"op {shown(node.name)} ({node.op[:80]})"


def sizes(shape: TensorShapeProto) -> list[int]:
    """The dimensions of a shape, -1 for one without a size."""
    return [dim.size for dim in shape.dim]


def _num_outputs(node: NodeDef) -> int:
    """The number of tensors that a node yields; 0 if TensorFlow doesn't know its kind, or it writes a variable."""
    definition = None if writes_variable(node.op) else op_def_registry.get(node.op)
    return sum(num_tensors(node, argument) for argument in definition.output_arg) if definition is not None else 0


def _check_node(node: NodeDef) -> None:
    for text in (node.name, node.op, *node.input):
        if isinstance(text, bytes) or not text or "\n" in text:
            raise ValueError(f"op {shown(node.name)}: {shown(text)} is no name; is this a GraphDef?")
    if node.op in FOREIGN:
        raise ValueError(f"{described(node)}: opens files or runs code of others; a step has no such op")
    for name in ("shape", "value"):
        if name in node.attr:
            attribute = node.attr[name]
            _check_shape(node, attribute.shape if name == "shape" else attribute.tensor.tensor_shape)


def _check_shape(node: NodeDef, shape: TensorShapeProto) -> None:
    dims = sizes(shape)
    if any(size < -1 for size in dims):
        raise ValueError(f"{described(node)}: {dims} has a negative dimension")
    elements = math.prod(size for size in dims if size > 0)
    if len(dims) > MAX_RANK or max(dims, default=0) > MAX_BYTES or elements > MAX_BYTES:
        raise ValueError(
            f"{described(node)}: {str(dims)[:200]} is more than {MAX_BYTES} elements or {MAX_RANK} dimensions"
        )


def _source(node: NodeDef, name: str, index: dict[str, int]) -> int:
    source = name.removeprefix("^").partition(":")[0]
    if source not in index:
        raise ValueError(f"{described(node)}: takes {shown(name)}, which no op makes")
    return index[source]


def _on_cycle(waiting: Sequence[int], sources: Sequence[Iterable[int]]) -> int:
    """A node on a cycle: follows waiting nodes back through waiting sources until one repeats."""
    seen: set[int] = set()
    number = next(number for number, count in enumerate(waiting) if count)
    while number not in seen:
        seen.add(number)
        number = next(source for source in sources[number] if waiting[source])
    return number
