"""Reads a `tf.function`, or a Python function that it could wrap, as a graph, traced for arguments of given shapes.

    graph = read_function(step, tf.TensorSpec((32, 784)), tf.TensorSpec((32,), tf.int32), name="mlp")

The function is traced, not computed, so it must not depend on the values of its arguments. Calls of other functions are
inlined (`calls`). A captured variable becomes a variable of the graph, in the scope of the op that reads it first; a
captured tensor becomes an input. The returned tensors are results. All changes of state belong to the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef

from gnnplace.frontends.tensorflow.calls import Flat, inlined, unused
from gnnplace.frontends.tensorflow.graph import read_step
from gnnplace.graph import ComputationGraph


@dataclass(frozen=True)
class TensorFlowFunction:
    """A function and the `tf.TensorSpec`s of its arguments (none for a ConcreteFunction).

    `blocks` is as in `read_step`.
    """

    function: Callable[..., Any]
    specs: tuple[Any, ...] = ()
    blocks: Mapping[str, int] = field(default_factory=dict)

    def computation_graph(self, name: str) -> ComputationGraph:
        """The function as a graph named `name`. Raises ValueError if it can't be captured."""
        return read_function(self.function, *self.specs, name=name, blocks=self.blocks)


def read_function(
    function: Callable[..., Any], *specs: Any, name: str, blocks: Mapping[str, int] | None = None
) -> ComputationGraph:
    """The graph of `function` for arguments of these (possibly nested) specs, named `name`.

    `blocks` is as in `read_step`. Raises ValueError if the function computes nothing, for unknown dimensions, control
    flow that depends on values, and captured resources that are not variables. Exceptions of the function pass.
    """
    traced = _traced(function, specs)
    flat = inlined(traced.graph.as_graph_def())
    _shape_inputs(flat, traced, [spec for spec in tf.nest.flatten(specs) if isinstance(spec, tf.TensorSpec)])
    fetches = [flat.fetched(fetch.name) for fetch in (*traced.graph.outputs, *traced.graph.control_outputs)]
    if not fetches:
        raise ValueError("function: returns no tensor and changes no variable, so there is nothing to compute")
    _include_variables(flat, traced)
    return read_step(flat.graph, fetches, name, blocks)


def _traced(function: Any, specs: tuple[Any, ...]) -> Any:
    """The ConcreteFunction for these specs."""
    if not hasattr(function, "get_concrete_function"):
        if hasattr(function, "captured_inputs") and not specs:
            return function
        function = tf.function(function)
    return function.get_concrete_function(*specs)


def _shape_inputs(flat: Flat, traced: Any, specs: Sequence[tf.TensorSpec]) -> None:
    """Sets the inputs' shapes to those of the specs; an earlier trace for open dimensions may have been reused."""
    nodes = {node.name: node for node in flat.graph.node}
    for tensor, spec in zip(traced.inputs, specs, strict=False):
        assert tensor.shape.is_compatible_with(spec.shape), tensor.name
        nodes[tensor.op.name].attr["shape"].shape.CopyFrom(spec.shape.as_proto())


def _include_variables(flat: Flat, traced: Any) -> None:
    """Turns each captured handle into a variable of the graph, named in the scope of the op that first uses it."""
    variables = {id(variable.handle): variable for variable in traced.graph.variables}
    nodes = {node.name: node for node in flat.graph.node}
    scopes = _first_scopes(flat.graph)
    used_names, renamed = set(nodes), {}
    for captured, inner in traced.graph.captures:
        if inner.dtype != tf.resource:
            continue
        if id(captured) not in variables:
            raise ValueError(
                f"function: captures {inner.op.name!r}, a resource that is no variable (a table, an iterator)"
            )
        variable, node = variables[id(captured)], nodes[inner.op.name]
        name = unused("/".join(filter(None, (scopes.get(node.name), _leaf(variable.name)))), used_names)
        _make_variable(node, name, variable)
        renamed[f"{inner.op.name}:0"] = f"{name}:0"
    for node in flat.graph.node:
        node.input[:] = [renamed.get(source, source) for source in node.input]


def _make_variable(node: NodeDef, name: str, variable: tf.Variable) -> None:
    node.Clear()
    node.name, node.op = name, "VarHandleOp"
    node.attr["dtype"].type = variable.dtype.as_datatype_enum
    node.attr["shape"].shape.CopyFrom(variable.shape.as_proto())
    node.attr["shared_name"].s = name.encode()


def _first_scopes(graph: GraphDef) -> dict[str, str]:
    """For each op, the scope of the first op that reads its data, directly or by way of a ReadVariableOp."""
    scopes: dict[str, str] = {}
    for node in reversed(graph.node):
        scope = (
            scopes[node.name] if node.op == "ReadVariableOp" and node.name in scopes else node.name.rpartition("/")[0]
        )
        for source in node.input:
            if not source.startswith("^"):
                scopes[source.partition(":")[0]] = scope
    return scopes


def _leaf(name: str) -> str:
    return name.partition(":")[0].rpartition("/")[2]
