"""Subgraphs of ONNX nodes (branches, bodies of loops): a walk over them, and copies in the graph around them.

A subgraph may read values of the graphs around it. A copy has new names for the values that it produces, so a body may
be copied once for each turn of a loop. Weights and constants of subgraphs belong to the whole model (`hoist`): a weight
in the body of a loop is one weight, whatever the number of turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from gnnplace.frontends.network.network import Names


class NewNames:
    """Hands out names that no value or no node of a model has, in whatever graph."""

    def __init__(self, model: ModelProto) -> None:
        values, nodes = Names(), Names()
        self.value: Callable[[str], str] = values.unique
        self.node: Callable[[str], str] = nodes.unique
        for graph in all_graphs(model.graph):
            for name in _produced(graph):
                values.unique(name)
            for node in graph.node:
                nodes.unique(node.name)


class Body(NamedTuple):
    """The nodes of a subgraph or function, the names of its inputs and outputs, and the declared types of values."""

    nodes: Sequence[NodeProto]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    declared: Sequence[ValueInfoProto] = ()


class Copy(NamedTuple):
    """A copy of a body: its nodes, the declared types of its values, and the names of its outputs."""

    nodes: list[NodeProto]
    declared: list[ValueInfoProto]
    outputs: tuple[str, ...]


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g") or attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def all_graphs(graph: GraphProto | FunctionProto) -> Iterator[GraphProto | FunctionProto]:
    """A graph and all graphs within it."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from all_graphs(inner)


def all_nodes(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """The nodes of a graph and of all graphs within it."""
    for inner in all_graphs(graph):
        yield from inner.node


def body_of(graph: GraphProto) -> Body:
    """The body that a graph is."""
    inputs, outputs = (tuple(value.name for value in values) for values in (graph.input, graph.output))
    return Body(graph.node, inputs, outputs, graph.value_info)


def scope_of(node: NodeProto) -> str:
    """The name scope of the copies of a node's subgraphs."""
    return node.name or next(iter(filter(None, node.output)), node.op_type)


def reads(node: NodeProto) -> Iterator[str]:
    """The values that a node and its subgraphs read, those that the subgraphs produce included."""
    yield from filter(None, node.input)
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from reads(inner)
        yield from (value.name for value in graph.output)


def copied(body: Body, scope: str, arguments: Mapping[str, str], results: Sequence[str], names: NewNames) -> Copy:
    """A copy of a body in the graph around it, in the name scope `scope`.

    `arguments` maps the body's inputs to values of the graph around it. `results` are names that outputs of the copy
    are to have, "" for any. An output that the body does not produce itself gets its name by an `Identity`.
    """
    produced = {name for node in body.nodes for name in node.output if name}
    renamed = dict(arguments)
    for name, result in zip(body.outputs, results, strict=False):
        if result and name in produced and name not in renamed:
            renamed[name] = result
    renamed |= {name: names.value(f"{scope}/{name}") for name in sorted(produced - renamed.keys())}
    nodes = [_copy(node, scope, renamed, names) for node in body.nodes]
    outputs = [renamed.get(name, name) for name in body.outputs]
    for index, result in enumerate(results):
        if result and outputs[index] != result:
            nodes.append(helper.make_node("Identity", [outputs[index]], [result], name=names.node(f"{scope}/Identity")))
            outputs[index] = result
    declared = [_declared(value, renamed[value.name]) for value in body.declared if value.name in produced]
    return Copy(nodes, declared, tuple(outputs))


def hoist(model: ModelProto) -> tuple[str, ...]:
    """Moves initializers and constants of all subgraphs to the graph of the model; returns their names there."""
    hoisted: list[TensorProto] = []
    names = NewNames(model)
    for node in model.graph.node:
        for graph in subgraphs(node):
            _hoist(graph, scope_of(node), names, hoisted)
    model.graph.initializer.extend(hoisted)
    return tuple(tensor.name for tensor in hoisted)


def _hoist(graph: GraphProto, scope: str, names: NewNames, hoisted: list[TensorProto]) -> None:
    constants = [node for node in graph.node if node.op_type == "Constant" and _tensor(node) is not None]
    values = [(tensor.name, tensor) for tensor in graph.initializer]
    values += [(node.output[0], tensor) for node in constants if (tensor := _tensor(node)) is not None]
    renamed = {name: names.value(f"{scope}/{name}") for name, _ in values}
    for name, tensor in values:
        hoisted.append(TensorProto())
        hoisted[-1].CopyFrom(tensor)
        hoisted[-1].name = renamed[name]
    inputs = [value for value in graph.input if value.name not in renamed]  # IR version 3 lists initializers as well
    nodes = [node for node in graph.node if not any(node is constant for constant in constants)]
    for node in nodes:
        _rename_reads(node, renamed)
    for value in graph.output:
        if value.name in renamed:
            nodes.append(helper.make_node("Identity", [renamed[value.name]], [value.name]))
    for field, kept in (("initializer", []), ("input", inputs), ("node", nodes)):
        graph.ClearField(field)
        getattr(graph, field).extend(kept)
    for node in graph.node:
        for inner in subgraphs(node):
            _hoist(inner, f"{scope}/{scope_of(node)}", names, hoisted)


def _tensor(node: NodeProto) -> TensorProto | None:
    """The tensor of a `Constant` node; None if it is given in another way."""
    return next((attribute.t for attribute in node.attribute if attribute.name == "value"), None)


def _produced(graph: GraphProto | FunctionProto) -> Iterator[str]:
    """The values that a graph produces or is given."""
    if isinstance(graph, GraphProto):
        yield from (value.name for value in graph.input)
        yield from (tensor.name for tensor in graph.initializer)
    yield from (name for node in graph.node for name in node.output if name)


def _copy(node: NodeProto, scope: str, renamed: Mapping[str, str], names: NewNames) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.name = names.node(f"{scope}/{(node.name or node.op_type).strip('/')}")
    _rename_reads(copy, renamed)
    _rename(copy.output, renamed)
    return copy


def _rename_reads(node: NodeProto, renamed: Mapping[str, str]) -> None:
    """Renames the values that a node and its subgraphs read from outside."""
    _rename(node.input, renamed)
    for graph in subgraphs(node):
        inner_values = set(_produced(graph))
        outer = {name: new for name, new in renamed.items() if name not in inner_values}
        for inner in graph.node:
            _rename_reads(inner, outer)
        for value in graph.output:
            value.name = outer.get(value.name, value.name)


def _rename(values: Iterable[str], renamed: Mapping[str, str]) -> None:
    for index, name in enumerate(values):
        if name in renamed:
            values[index] = renamed[name]  # type: ignore[index]  # a repeated field of protobuf


def _declared(value: ValueInfoProto, name: str) -> ValueInfoProto:
    copy = ValueInfoProto()
    copy.CopyFrom(value)
    copy.name = name
    return copy
