"""A GraphDef without calls: the ops of a function's body stand in the place of each call, as TensorFlow's own inlining
has them.

What the body takes it takes from where the call did, and waits for what the call waited for; who waits for the call
waits for the body's results and side effects. The ops keep their names in the scope of the call (`model/cell/MatMul`
for a call in `model`), or in one of the call's name where these are taken. Those of the gradient of a call
(`gradients/cell/MatMul_grad/MatMul`) keep them in the scope where the ops of that call went
(`gradients/model/cell/MatMul_grad/MatMul`), so that roles find their forward op. An IdentityN is passed by: optimisers
gather the gradients of all variables in one, which would wait for all of them.
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
PLUMBING = ("Identity", "NoOp")  # every body has them, under the same names
MAX_NODES = 1_000_000  # functions inlined


@dataclass(frozen=True)
class Flat:
    """The graph without calls, and where the outputs of what is gone come
    from (`call:0` -> `cell/Relu:0`, an op `^call` likewise).
    """

    graph: GraphDef
    moved: Mapping[str, str]

    def fetched(self, name: str) -> str:
        """A fetched tensor (`call:0`) or op (`call`) by its name now."""
        return self.resolve(name) if ":" in name else self.resolve(f"^{name}").removeprefix("^")

    def resolve(self, reference: str) -> str:
        """An input of a node by its name now.

        Raises ValueError where calls and IdentityNs pass it round in a circle.
        """
        found = _full(reference)
        for _ in range(len(self.moved) + 1):
            if found not in self.moved:
                return found
            found = _full(self.moved[found])
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
    """Calls that were replaced so far: `taken` are the names of nodes, `scope` the prefix of the body of each call."""

    library: Mapping[str, FunctionDef]
    taken: set[str]
    moved: dict[str, str] = field(default_factory=dict)
    scope: dict[str, str] = field(default_factory=dict)
    callee: dict[str, FunctionDef] = field(default_factory=dict)

    def nodes(self, root: NodeDef) -> Iterator[NodeDef]:
        """The nodes that stand for one node, in order."""
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
        names = self._names(call, function)
        given = function.signature.input_arg
        if len(given) != len(_data(call)):
            raise ValueError(f"op {call.name!r}: gives {len(_data(call))} arguments to a function of {len(given)}")
        arguments = {argument.name: source for argument, source in zip(given, _data(call), strict=True)}
        waits = [source for source in call.input if source.startswith("^")]
        body = _Body(function, names, arguments, self.library)
        nodes = [body.node(node, waits) for node in function.node_def]
        for index, output in enumerate(function.signature.output_arg):
            self.moved[f"{call.name}:{index}"] = body.source(function.ret[output.name])
        done = NodeDef(name=self._free(f"{call.name}/done"), op="NoOp", input=self._ends(call, body, waits))
        self.moved[f"^{call.name}"] = f"^{done.name}"
        return [*nodes, done]

    def _ends(self, call: NodeDef, body: _Body, waits: Sequence[str]) -> list[str]:
        """What whoever waits for the call waits for now."""
        results = (self.moved[f"{call.name}:{index}"] for index in range(len(body.function.signature.output_arg)))
        effects = (f"^{body.names[name]}" for name in body.function.control_ret.values())
        return list(dict.fromkeys([*effects, *(f"^{_node_of(result)}" for result in results), *waits]))

    def _names(self, call: NodeDef, function: FunctionDef) -> dict[str, str]:
        """The new name of each op of a body."""
        self.callee[call.name] = function
        gradient_of = self._gradient_of(call, function)
        own = call.name.rpartition("/")[0]
        places = [f"{own}/" if own else "", f"{call.name}/"] if gradient_of is None else [self.scope[gradient_of]]
        for scope in places:
            names = {node.name: _in_scope(node.name, scope, gradient_of is not None) for node in function.node_def}
            if self.taken.isdisjoint(names[node.name] for node in function.node_def if node.op not in PLUMBING):
                break
        self.scope[call.name] = scope
        return {name: self._free(new) for name, new in names.items()}

    def _gradient_of(self, call: NodeDef, function: FunctionDef) -> str | None:
        """The call whose gradient this one computes: it takes what that one kept for it."""
        forward = (
            function.attr["forward_function_name"].s.decode() if "forward_function_name" in function.attr else None
        )
        sources = dict.fromkeys(_node_of(source) for source in _data(call))
        kept = (name for name in sources if name in self.callee and self.callee[name].signature.name == forward)
        return next(kept, None) if forward else None

    def _free(self, name: str) -> str:
        free, number = name, 0
        while free in self.taken:
            number += 1
            free = f"{name}_{number}"
        self.taken.add(free)
        return free


@dataclass(frozen=True)
class _Body:
    """The body of a function for one call: the new `names` of its ops and what its `arguments` are."""

    function: FunctionDef
    names: Mapping[str, str]
    arguments: Mapping[str, str]
    library: Mapping[str, FunctionDef]
    ops: dict[str, NodeDef] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ops.update({node.name: node for node in self.function.node_def})

    def node(self, node: NodeDef, waits: Sequence[str]) -> NodeDef:
        """A copy for this call; what takes nothing but arguments waits for what the call waited for."""
        copy = NodeDef()
        copy.CopyFrom(node)
        copy.name = self.names[node.name]
        sources = [self.source(source) for source in node.input]
        begins = all(source.startswith("^") or source in self.arguments for source in node.input)
        copy.input[:] = [*sources, *(wait for wait in waits if wait not in sources)] if begins else sources
        places = copy.attr["_class"].list.s if "_class" in copy.attr else []
        for index, place in enumerate(places):
            name = place.decode().removeprefix("loc:@")
            places[index] = f"loc:@{self.names.get(name, name)}".encode()
        return copy

    def source(self, reference: str) -> str:
        """An input of an op of the body (`op:output:0`, an argument, `^op`) as nodes of a graph have it."""
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
    """The function that a node calls, None where it is no call."""
    name = node.attr["f"].func.name if node.op in CALLS else node.op if node.op in library else None
    if name is not None and name not in library:
        raise ValueError(f"op {node.name!r}: calls {name!r}, which the library of the graph doesn't have")
    return name


def num_tensors(node: NodeDef, argument: Any) -> int:
    """How many tensors one argument or output in the definition of a node's op stands for."""
    if argument.number_attr:
        return node.attr[argument.number_attr].i
    return len(node.attr[argument.type_list_attr].list.type) if argument.type_list_attr else 1


def _in_scope(name: str, scope: str, of_gradient: bool) -> str:
    if of_gradient:
        return f"{GRADIENTS}{scope}{name.removeprefix(GRADIENTS)}"
    return f"{scope}{name}"


def _full(reference: str) -> str:
    """The first output of an op has two names."""
    return reference if reference.startswith("^") or ":" in reference else f"{reference}:0"


def _data(node: NodeDef) -> list[str]:
    return [source for source in node.input if not source.startswith("^")]


def _node_of(reference: str) -> str:
    return reference.removeprefix("^").partition(":")[0]


def _first_output(node: NodeDef, output: str, library: Mapping[str, FunctionDef]) -> int:
    """The index of the first tensor of an output that a function's body names."""
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
    if (nodes := size(graph.node)) > MAX_NODES:
        raise ValueError(f"graph: {nodes} nodes, functions inlined, are more than {MAX_NODES}")
