"""What is refused of a GraphDef before TensorFlow sees it: counts, names, cycles, sizes, ops that read files. And what
it can compute.

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
# Kinds that open files or run the code of others, which a step does not do and shape inference must not
FOREIGN = (
    "ReadFile",
    "WriteFile",
    "MatchingFiles",
    "PyFunc",
    "PyFuncStateless",
    "EagerPyFunc",
    "LoadAndRemapMatrix",
    "DebugIdentityV2",
)
# Kinds whose outputs, if any, are no results: control, checkpoints, what is there without computing
SERVICE = (
    "NoOp", "Assert", "PrintV2", "Save", "SaveV2", "SaveSlices", "Restore", "RestoreV2", "MergeV2Checkpoints",
    "ShardedFilename",
    "VarHandleOp", "VarIsInitializedOp", "ReadVariableOp", "Placeholder", "Const",
)  # fmt: skip


def check_graph(graph: GraphDef) -> None:
    """A graph as it stands in a file: counts, names, inputs, kinds, cycles, the sizes of constants and variables."""
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
    """Every node has a name of its own, inputs are nodes, and nothing waits for itself."""
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
    """The tensors that a graph computes for whoever runs it: those of all nodes whose data no other takes.

    Raises ValueError where variables are written, or nothing is computed, so that somebody has to say what a step is.
    """
    # what somebody waits for may be a result
    taken = {name.partition(":")[0] for node in graph.node for name in node.input}
    ends = [node for node in graph.node if node.name not in taken]
    found = [f"{node.name}:{index}" for node in ends if node.op not in SERVICE for index in range(_num_outputs(node))]
    writers = [node for node in graph.node if writes_variable(node.op)]
    if found and not writers:
        return found
    waited = {name.removeprefix("^") for node in graph.node for name in node.input}
    steps = [node.name for node in ends if node.op == "NoOp" and node.name not in waited]
    wanted = [name for name in (*found, *steps) if not GRADIENT_SCOPE.search(name)]
    named = ", ".join(wanted[:MOST_NAMED]) + (
        f" and {len(wanted) - MOST_NAMED} more" if len(wanted) > MOST_NAMED else ""
    )
    why = (
        f"{len(writers)} ops write variables, so it is ambiguous what one step does"
        if writers
        else "nothing in it is a result"
    )
    raise ValueError(
        f"graph: {why}; say what the step computes by --fetch NAME, once for each; it ends in {named or 'nothing'}"
    )


def described(node: NodeDef) -> str:
    """A node in words."""
    return f"op {shown(node.name)} ({node.op[:80]})"


def sizes(shape: TensorShapeProto) -> list[int]:
    """The dimensions of a shape, -1 where one has no size."""
    return [dim.size for dim in shape.dim]


def _num_outputs(node: NodeDef) -> int:
    """How many tensors a node makes; none where TensorFlow doesn't know its kind, or it writes a variable."""
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
    known = sizes(shape)
    if any(size < -1 for size in known):
        raise ValueError(f"{described(node)}: {known} has a negative dimension")
    if (
        len(known) > MAX_RANK
        or max(known, default=0) > MAX_BYTES
        or math.prod(size for size in known if size > 0) > MAX_BYTES
    ):
        raise ValueError(
            f"{described(node)}: {str(known)[:200]} is more than {MAX_BYTES} elements or {MAX_RANK} dimensions"
        )


def _source(node: NodeDef, name: str, index: dict[str, int]) -> int:
    source = name.removeprefix("^").partition(":")[0]
    if source not in index:
        raise ValueError(f"{described(node)}: takes {shown(name)}, which no op makes")
    return index[source]


def _on_cycle(waiting: Sequence[int], sources: Sequence[Iterable[int]]) -> int:
    """A node of a cycle: back from one that waits, through others that wait, until one comes twice."""
    seen: set[int] = set()
    number = next(number for number, count in enumerate(waiting) if count)
    while number not in seen:
        seen.add(number)
        number = next(source for source in sources[number] if waiting[source])
    return number
