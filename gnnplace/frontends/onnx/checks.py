"""Checks an ONNX file before shape inference: counts, subgraphs, names, order, sizes.

Every `check_` function raises ValueError (one line) with the node or value and the rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

from gnnplace.frontends.network import network
from gnnplace.frontends.network.network import Tensor, shown
from gnnplace.frontends.onnx.flops import DTYPES
from gnnplace.frontends.onnx.folding import ONNX_DOMAINS
from gnnplace.frontends.onnx.subgraphs import all_graphs, all_nodes, subgraphs

MAX_NODES = 1_000_000  # after inlining of functions
MAX_FUNCTIONS = 100_000
GRADIENT = "ai.onnx.preview.training.Gradient"
MAX_VALUES = 5_000_000  # inputs and outputs of nodes


def check_model(model: ModelProto) -> None:
    """Checks the whole file before functions are inlined: text, counts, recursion, subgraphs."""
    for text in _texts(model):
        if isinstance(text, bytes):  # protobuf returns text that is not Unicode as bytes
            raise ValueError(f"graph: the name {text[:80]!r} is not Unicode text; is this an ONNX model?")
    if not model.graph.node:
        raise ValueError("graph: has no nodes; is this an ONNX model?")
    if len(model.functions) > MAX_FUNCTIONS:
        raise ValueError(f"functions: the model has {len(model.functions)}; at most {MAX_FUNCTIONS} are allowed")
    if (num_nodes := _num_inlined(model)) > MAX_NODES:
        raise ValueError(f"graph: {num_nodes} nodes after inlining; at most {MAX_NODES} are allowed")
    for graph in (model.graph, *model.functions):
        for inner in all_graphs(graph):
            if isinstance(inner, GraphProto) and inner.sparse_initializer:
                tensor = inner.sparse_initializer[0]
                raise ValueError(f"initializer {shown(tensor.values.name)}: is sparse; store it dense")


def check_graph(graph: GraphProto) -> None:
    """Checks the inlined graph: declared types, and that every value is produced exactly once, before it is read."""
    count = sum(len(node.input) + len(node.output) for node in all_nodes(graph))
    if count > MAX_VALUES:
        raise ValueError(f"graph: its nodes have {count} inputs and outputs; at most {MAX_VALUES} are allowed")
    for inner in all_graphs(graph):
        for value in (*inner.input, *inner.output, *inner.value_info):
            _check_declared(value.name, value.type)
        for tensor in inner.initializer:
            check_initializer(tensor)
    for node in all_nodes(graph):
        if node.op_type == "Gradient" and kind_of(node) == GRADIENT:
            raise ValueError(
                f"{described(node)}: differentiates other nodes, and how is not in the file; capture the training step "
                "from PyTorch or TensorFlow"
            )
    _check_names(graph, ())


def check_initializer(tensor: TensorProto) -> None:
    """Checks an initializer's type and size, and the length of its data if the file holds it."""
    declared = tensor_of(f"initializer {shown(tensor.name)}", tensor.data_type, tensor.dims)
    if tensor.raw_data and declared.dtype != "string" and len(tensor.raw_data) != declared.bytes:
        raise ValueError(f"initializer {shown(tensor.name)}: {len(tensor.raw_data)} bytes of data for {declared}")


def tensor_of(place: str, dtype: int, shape: Iterable[int]) -> Tensor:
    """The tensor of a data type and a fixed shape. Raises ValueError for an unknown type or an absurd shape."""
    if dtype not in DTYPES:
        raise ValueError(f"{place}: unknown data type {dtype}")
    return network.checked(place, Tensor(tuple(shape), DTYPES[dtype]))


def kind_of(node: NodeProto) -> str:
    """The op type on one line, with its domain as a prefix unless that is ONNX's own."""
    kind = node.op_type if node.domain in ONNX_DOMAINS else f"{node.domain}.{node.op_type}"
    return kind if kind.isprintable() else repr(kind)[1:-1]


def described(node: NodeProto) -> str:
    """The node's name and kind, for messages."""
    name = node.name or next(iter(filter(None, node.output)), "")
    return f"node {shown(name)} ({kind_of(node)[:80]})"


def _texts(model: ModelProto) -> Iterator[str | bytes]:
    """All names in the file: of values, nodes, kinds, attributes, functions and dimensions."""
    for function in model.functions:
        yield from (function.domain, function.name, function.overload, *function.input, *function.output)
    for graph in (inner for outer in (model.graph, *model.functions) for inner in all_graphs(outer)):
        if isinstance(graph, GraphProto):
            for value in (*graph.input, *graph.output, *graph.value_info):
                yield value.name
                yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
            yield from (tensor.name for tensor in graph.initializer)
        for node in graph.node:
            yield from (node.name, node.op_type, node.domain, node.overload, *node.input, *node.output)
            yield from (attribute.name for attribute in node.attribute)


def _num_inlined(model: ModelProto) -> int:
    """The number of nodes after functions are inlined."""
    bodies = {(function.domain, function.name, function.overload): function for function in model.functions}

    def size(body: GraphProto | FunctionProto) -> int:
        return sum(sizes.get(_called(node), 1) for node in all_nodes(body))

    sizes: dict[tuple[str, str, str], int] = {}
    calls = {
        key: [called for node in all_nodes(body) if (called := _called(node)) in bodies] for key, body in bodies.items()
    }
    try:
        for key in TopologicalSorter(calls).static_order():
            sizes[key] = min(size(bodies[key]), MAX_VALUES)
    except CycleError as error:
        raise ValueError(f"function {shown(error.args[1][0][1])}: calls itself, directly or through others") from None
    return size(model.graph)


def _called(node: NodeProto) -> tuple[str, str, str]:
    return node.domain, node.op_type, node.overload


def _check_declared(name: str, declared: TypeProto) -> None:
    tensor = declared.tensor_type
    dims = [dim.dim_value for dim in tensor.shape.dim if dim.HasField("dim_value")]
    if tensor.elem_type:
        tensor_of(f"value {shown(name)}", tensor.elem_type, dims)


def _check_names(graph: GraphProto, outer: tuple[set[str], ...]) -> None:
    """Checks that every value is produced exactly once, before it is read. A subgraph reads those of `outer`, too."""
    available: set[str] = set()
    scopes = (*outer, available)
    initializers = {tensor.name for tensor in graph.initializer}
    produced = {name for node in graph.node for name in node.output}
    for what, name in _sources(graph, initializers):
        if not name:
            raise ValueError(f"{what}: has no name")
        if name in available:
            raise ValueError(f"{what} {shown(name)}: the name is not unique")
        available.add(name)
    for node in graph.node:
        for name in node.input:
            if name and not any(name in scope for scope in scopes):
                why = (
                    "which only it or a later node produces: a cycle, or nodes out of order"
                    if name in produced
                    else "which nothing produces"
                )
                raise ValueError(f"{described(node)}: reads {shown(name)}, {why}")
        for inner in subgraphs(node):
            _check_names(inner, scopes)
        for name in filter(None, node.output):
            if name in available:
                raise ValueError(f"{described(node)}: produces {shown(name)}, which exists already")
            available.add(name)
    for value in graph.output:
        if not any(value.name in scope for scope in scopes):
            raise ValueError(f"output {shown(value.name)}: nothing produces it")


def _sources(graph: GraphProto, initializers: set[str]) -> Iterator[tuple[str, str]]:
    """The values that no node produces. Files of IR version 3 list initializers among the inputs as well."""
    yield from (("initializer", tensor.name) for tensor in graph.initializer)
    yield from (("input", value.name) for value in graph.input if value.name not in initializers)
