"""Inlines the function calls of a GraphDef, as TensorFlow itself does: the ops of the function's body replace the call.

The body reads the call's inputs and waits for the ops that the call waited for. Ops that waited for the call wait for
the body's results and side effects. The body's ops keep their names, in the scope of the call (`model/cell/MatMul` for
a call in `model`) or, if a name is in use there, in a scope with the call's name. The ops of a call's gradient
(`gradients/cell/MatMul_grad/MatMul`) get the scope of that call's ops (`gradients/model/cell/MatMul_grad/MatMul`), so
that `roles` finds their forward op. Readers of an IdentityN read its inputs instead: optimisers pass the gradients of
all variables through one IdentityN, which would wait for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from tensorflow.core.framework.function_pb2 import FunctionDef
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.framework import op_def_registry

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
GRADIENTS = "gradients/"
PLUMBING = ("Identity", "NoOp")  # every body has them, with the same names
MAX_NODES = 1_000_000  # after inlining of functions


@dataclass(frozen=True)
class Flat:
    """The graph without calls.

    `moved` maps the outputs of removed nodes to those that replace them (`call:0` -> `cell/Relu:0`; ops like `^call`).
    """

    graph: GraphDef
    moved: Mapping[str, str]

    def fetched(self, name: str) -> str:
        """The present name of a fetched tensor (`call:0`) or op (`call`)."""
        return self.resolve(name) if ":" in name else self.resolve(f"^{name}").removeprefix("^")

    def resolve(self, reference: str) -> str:
        """The present name of a node's input. Raises ValueError for a cycle of calls and IdentityNs."""
        current = _full(reference)
        for _ in range(len(self.moved) + 1):
            if current not in self.moved:
                return current
            current = _full(self.moved[current])
        raise ValueError(f"graph: {reference!r} is made of itself: a cycle")


def inlined(graph: GraphDef) -> Flat:
    """The graph with all calls inlined.

    Raises ValueError for functions that call themselves, are missing or too large.
    """
    library = {function.signature.name: function for function in graph.library.function}
    _check_size(graph, library)
    expansion = _Expansion(library, {node.name for node in graph.node})
    flat = Flat(GraphDef(versions=graph.versions), expansion.moved)
    flat.graph.node.extend(node for root in graph.node for node in expansion.nodes(root))
    for node in flat.graph.node:
        node.input[:] = [flat.resolve(reference) for reference in node.input]
    return flat


@dataclass
class _Expansion:
    """The state of inlining."""

    library: Mapping[str, FunctionDef]
    used_names: set[str]
    moved: dict[str, str] = field(default_factory=dict)
    scope: dict[str, str] = field(default_factory=dict)  # call -> prefix of the ops of its body
    callee: dict[str, FunctionDef] = field(default_factory=dict)

    def nodes(self, root: NodeDef) -> Iterator[NodeDef]:
        """The nodes that replace one node, in order."""
        stack = [root]
        while stack:
            node = stack.pop()
            if (name := called(node, self.library)) is None:
                if node.op == "IdentityN":
                    self.moved |= {f"{node.name}:{index}": source for index, source in enumerate(_data(node))}
                yield node
            else:
                stack += reversed(self._expand(node, self.library[name]))

    def _expand(self, call: NodeDef, function: FunctionDef) -> list[NodeDef]:
        """The nodes that replace a call: those of the body, and a NoOp that ends with the call."""
        names = self._names(call, function)
        parameters, sources = function.signature.input_arg, _data(call)
        if len(parameters) != len(sources):
            raise ValueError(f"op {call.name!r}: gives {len(sources)} arguments to a function of {len(parameters)}")
        arguments = {parameter.name: source for parameter, source in zip(parameters, sources, strict=True)}
        waits = [source for source in call.input if source.startswith("^")]
        body = _Body(function, names, arguments, self.library)
        nodes = [body.node(node, waits) for node in function.node_def]
        for index, output in enumerate(function.signature.output_arg):
            self.moved[f"{call.name}:{index}"] = body.source(function.ret[output.name])
        done = NodeDef(name=self._unused(f"{call.name}/done"), op="NoOp", input=self._ends(call, body, waits))
        self.moved[f"^{call.name}"] = f"^{done.name}"
        return [*nodes, done]

    def _ends(self, call: NodeDef, body: _Body, waits: Sequence[str]) -> list[str]:
        """The ops that end with the call: those of its results and side effects, and what the call waited for."""
        results = (self.moved[f"{call.name}:{index}"] for index in range(len(body.function.signature.output_arg)))
        effects = (f"^{body.names[name]}" for name in body.function.control_ret.values())
        return list(dict.fromkeys([*effects, *(f"^{_node_of(result)}" for result in results), *waits]))

    def _names(self, call: NodeDef, function: FunctionDef) -> dict[str, str]:
        """The new name of each op of a body."""
        self.callee[call.name] = function
        gradient_of = self._gradient_of(call, function)
        if gradient_of is None:
            parent = call.name.rpartition("/")[0]
            scopes = [f"{parent}/" if parent else "", f"{call.name}/"]
        else:
            scopes = [self.scope[gradient_of]]
        for scope in scopes:
            names = {node.name: _in_scope(node.name, scope, gradient_of is not None) for node in function.node_def}
            if self.used_names.isdisjoint(names[node.name] for node in function.node_def if node.op not in PLUMBING):
                break
        self.scope[call.name] = scope
        return {name: self._unused(new) for name, new in names.items()}

    def _gradient_of(self, call: NodeDef, function: FunctionDef) -> str | None:
        """The call whose gradient this one computes: it reads values that the forward call has saved for it."""
        if "forward_function_name" not in function.attr:
            return None
        forward = function.attr["forward_function_name"].s.decode()
        sources = dict.fromkeys(_node_of(source) for source in _data(call))
        calls = (name for name in sources if name in self.callee and self.callee[name].signature.name == forward)
        return next(calls, None) if forward else None

    def _unused(self, name: str) -> str:
        return unused(name, self.used_names)


@dataclass(frozen=True)
class _Body:
    """The body of a function for one call: the new `names` of its ops, and the sources of its `arguments`."""

    function: FunctionDef
    names: Mapping[str, str]
    arguments: Mapping[str, str]
    library: Mapping[str, FunctionDef]
    ops: dict[str, NodeDef] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ops.update({node.name: node for node in self.function.node_def})

    def node(self, node: NodeDef, waits: Sequence[str]) -> NodeDef:
        """A copy of an op for this call. An op that reads nothing but arguments waits for what the call waited for."""
        copy = NodeDef()
        copy.CopyFrom(node)
        copy.name = self.names[node.name]
        sources = [self.source(source) for source in node.input]
        begins = all(source.startswith("^") or source in self.arguments for source in node.input)
        copy.input[:] = [*sources, *(wait for wait in waits if wait not in sources)] if begins else sources
        colocated = copy.attr["_class"].list.s if "_class" in copy.attr else []
        for index, location in enumerate(colocated):
            name = location.decode().removeprefix("loc:@")
            colocated[index] = f"loc:@{self.names.get(name, name)}".encode()
        return copy

    def source(self, reference: str) -> str:
        """The name in the graph of an input of the body's op: an argument, `op:output:0` or `^op`."""
        if reference.startswith("^"):
            return f"^{self._renamed(reference[1:])}"
        name, *output = reference.split(":")
        if not output:
            if name not in self.arguments:
                raise ValueError(
                    f"function {self.function.signature.name!r}: takes {name!r}, which is no argument of it"
                )
            return self.arguments[name]
        index = _first_output(self.ops[name], output[0], self.library) if name in self.ops else 0
        return f"{self._renamed(name)}:{index + int(output[1] if len(output) > 1 else 0)}"

    def _renamed(self, name: str) -> str:
        if name not in self.names:
            raise ValueError(f"function {self.function.signature.name!r}: takes {name!r}, which is no op of it")
        return self.names[name]


def called(node: NodeDef, library: Mapping[str, FunctionDef]) -> str | None:
    """The name of the function that a node calls; None if it is no call."""
    name = node.attr["f"].func.name if node.op in CALLS else node.op if node.op in library else None
    if name is not None and name not in library:
        raise ValueError(f"op {node.name!r}: calls {name!r}, which the library of the graph doesn't have")
    return name


def num_tensors(node: NodeDef, argument: Any) -> int:
    """The number of tensors that one argument or output in the definition of a node's op stands for."""
    if argument.number_attr:
        return node.attr[argument.number_attr].i
    return len(node.attr[argument.type_list_attr].list.type) if argument.type_list_attr else 1


def unused(name: str, used_names: set[str]) -> str:
    """The name, with a number behind it if it is in `used_names`; adds the result to these."""
    candidate, number = name, 0
    while candidate in used_names:
        number += 1
        candidate = f"{name}_{number}"
    used_names.add(candidate)
    return candidate


def _in_scope(name: str, scope: str, of_gradient: bool) -> str:
    if of_gradient:
        return f"{GRADIENTS}{scope}{name.removeprefix(GRADIENTS)}"
    return f"{scope}{name}"


def _full(reference: str) -> str:
    """The name of an input with its output: `op` is `op:0`."""
    return reference if reference.startswith("^") or ":" in reference else f"{reference}:0"


def _data(node: NodeDef) -> list[str]:
    return [source for source in node.input if not source.startswith("^")]


def _node_of(reference: str) -> str:
    return reference.removeprefix("^").partition(":")[0]


def _first_output(node: NodeDef, output: str, library: Mapping[str, FunctionDef]) -> int:
    """The index, among the tensors of a node, of the first one of the output called `output`."""
    if node.op in library:
        return [argument.name for argument in library[node.op].signature.output_arg].index(output)
    definition = op_def_registry.get(node.op)
    if definition is None:
        raise ValueError(f"op {node.name!r}: TensorFlow knows no {node.op}")
    index = 0
    for argument in definition.output_arg:
        if argument.name == output:
            return index
        index += num_tensors(node, argument)
    raise ValueError(f"op {node.name!r}: a {node.op} has no output {output!r}")


def _check_size(graph: GraphDef, library: Mapping[str, FunctionDef]) -> None:
    """Raises ValueError for functions that call themselves, and for more than `MAX_NODES` nodes after inlining."""

    def size(nodes: Sequence[NodeDef]) -> int:
        return sum(1 if (name := called(node, library)) is None else 1 + sizes[name] for node in nodes)

    calls = {
        name: [callee for node in function.node_def if (callee := called(node, library)) is not None]
        for name, function in library.items()
    }
    sizes: dict[str, int] = {}
    try:
        for name in TopologicalSorter(calls).static_order():
            sizes[name] = min(size(library[name].node_def), MAX_NODES + 1)
    except CycleError as error:
        raise ValueError(f"function {error.args[1][0]!r}: calls itself, directly or through others") from None
    if (num_nodes := size(graph.node)) > MAX_NODES:
        raise ValueError(f"graph: {num_nodes} nodes, functions inlined, are more than {MAX_NODES}")
