"""Turns the ATen calls of a trace, forward, backward and update, into ops, edges and colocation groups.

Ops keep the order of the trace, and tensors that share a storage are aliases. Nothing is computed and no memory is
allocated: module and inputs may be on the `meta` device. In the graph

- each parameter and buffer is an op `variable` with its persistent bytes (including the optimiser's state) and, if it
  is used, one op `read` that aliases it; an unused parameter is an op without edges;
- views and in-place ops alias the buffer of an input; a view that equals an earlier tensor (`detach`, a transpose of a
  transpose) is that tensor, not an op;
- an op that writes in place is colocated with the buffer and with the views through which it writes; a read after a
  write gets its tensor from the buffer, by an op `alias` that is colocated as well; a buffer that the module replaces
  is written once, at the end;
- each parameter has one fused in-place update, after all reads of the parameter and on its device; a sparse embedding
  has one row-wise update for each lookup or, if its table is also read as a whole, one op for each lookup that adds the
  rows to the dense gradient; separate ops add the gradients of micro-batches and scale clipped gradients;
- an op that computes stays though no op reads it, since eager PyTorch runs it, too (a pooler that the loss ignores);
- `layer` is the module path, also for the gradients of a module's ops; `block` is the first number in it;
- `time_step` is the number that the module marks (`scopes.time_step`), also for gradients; ops on parameters alone,
  sums of weight gradients over time and updates have none;
- a gradient op is `backward_weight` if it serves only parameters of its own layer, else `backward_data`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import getitem
from types import MappingProxyType

import torch
from torch import Tensor

from gnnplace.frontends.origin import CLIP_LAYER
from gnnplace.frontends.torch import flops
from gnnplace.frontends.torch.buffers import CapturedBuffers, Ref, shares
from gnnplace.frontends.torch.calls import Call, call_of, tensor_bytes, values_of
from gnnplace.frontends.torch.kinds import canonical_kind
from gnnplace.frontends.torch.scopes import scope_of
from gnnplace.frontends.torch.strided import needs_its_storage
from gnnplace.frontends.torch.trace import Trace
from gnnplace.graph import CONTROL, ComputationGraph, Op, Output

BACKWARD = ("backward_data", "backward_weight")
SUMS = ("aten.add", "aten.add_")
OF_EXAMPLE, OF_RUN = ", sizes of the example", ", sizes of one run"


@dataclass(frozen=True)
class TracedStep:
    """The graph of a step, and the trace from which it was built."""

    graph: ComputationGraph
    trace: Trace
    op_of: Mapping[torch.fx.Node, int]  # the op of each node of the trace
    written: Mapping[Ref, tuple[int, ...]]  # the ops that write each buffer in place, by the (op, output) that owns it


def traced_step(traced: Trace, name: str) -> TracedStep:
    """The graph of a trace. Its name says so if sizes are those of the example inputs or of one run."""
    if traced.sizes is not None:
        suffix = OF_RUN if traced.sizes.of_run else OF_EXAMPLE
        name = f"{name.removesuffix(suffix)}{suffix}"
    builder = _Builder(traced)
    for node in traced.graph.nodes:
        builder.add(node)
    graph = ComputationGraph.from_ops(name, builder.finished(), sorted(builder.buffers.edges))
    written = MappingProxyType({root: tuple(ops) for root, ops in builder.written.items()})
    return TracedStep(graph, traced, MappingProxyType(builder.op_of), written)


class _Builder:
    """Turns nodes into ops, in order. `_refs` maps a node to its outputs in the graph."""

    def __init__(self, traced: Trace) -> None:
        self.buffers = CapturedBuffers()
        self.op_of: dict[torch.fx.Node, int] = {}
        self.written: dict[Ref, list[int]] = defaultdict(list)
        self._ops: list[Op] = []
        self._refs: dict[torch.fx.Node, tuple[Ref, ...]] = {}
        self._arguments = iter(traced.arguments)
        self._layers = traced.layers
        self._reads = _read_names([argument.name for argument in traced.arguments])
        self._reserved = {*self._reads, *self._reads.values()}
        self._owners: dict[int, tuple[str, ...]] = {}  # the layers of the variable of each read
        self._variables: dict[str, int] = {}
        self._parameters: set[int] = set()  # reads, and ops that depend on reads alone
        self._update_layers: dict[int, tuple[str, ...]] = {}

    def add(self, node: torch.fx.Node) -> None:
        match node.op:
            case "placeholder":
                self._add_argument(node)
            case "get_attr":
                self._add_constant(node)
            case "output":
                self._mark_results(node)
            case "call_function" if node.target is getitem:
                source, index = node.args
                assert isinstance(source, torch.fx.Node) and isinstance(index, int)
                self._refs[node] = (self._refs[source][index],)
            case "call_function" if node.all_input_nodes and not any(
                self._refs[parent] for parent in node.all_input_nodes
            ):
                self._refs[node] = ()  # it counts steps in the optimiser's state, as part of the update
            case _:
                self._add_call(node)

    def finished(self) -> list[Op]:
        """The ops with their phases and colocation groups, which depend on the whole graph."""
        groups = [self.buffers.group(op) for op in range(len(self._ops))]
        shared = Counter(groups)
        names = [self._ops[group].name if shared[group] > 1 else None for group in groups]
        return [
            replace(op, phase=phase, colocation=name, time_step=None if _sums_over_time(op, phase) else op.time_step)
            for op, phase, name in zip(self._ops, self._phases(), names, strict=True)
        ]

    def _add_argument(self, node: torch.fx.Node) -> None:
        argument, tensor = next(self._arguments), node.meta["val"]
        size = tensor_bytes(tensor)
        if argument.role == "input":
            op = self._append(
                Op(argument.name, "input", (_output(tensor),), kernel=False, canonical_kind="input", layer="inputs"), ()
            )
            self._set_outputs(node, op, (tensor,))
        elif argument.role == "state":
            if node.users:
                variable = self._variables[argument.name]
                self._ops[variable] = replace(
                    self._ops[variable], persistent_bytes=self._ops[variable].persistent_bytes + size
                )
            self.op_of[node], self._refs[node] = self._variables[argument.name], ()
        else:
            self._add_variable(node, argument.name, argument.role, size)

    def _add_constant(self, node: torch.fx.Node) -> None:
        op = self._append(
            Op(node.name, "constant", (_output(node.meta["val"]),), kernel=False, canonical_kind="fill"), ()
        )
        self._set_outputs(node, op, (node.meta["val"],))

    def _add_variable(self, node: torch.fx.Node, name: str, role: str, size: int) -> None:
        layer = self._layers[name][0]
        common = Op(name, role, kernel=False, canonical_kind="variable", layer=layer, block=_block(layer))
        variable = self._append(replace(common, outputs=(Output(0, (), "resource"),), persistent_bytes=size), ())
        self._variables[name] = self.op_of[node] = variable
        if not node.users:
            return
        tensor = node.meta["val"]
        read = self._append(
            replace(common, name=self._reads[name], kind="read", outputs=(_output(tensor, (variable, 0)),)),
            ((variable, 0),),
        )
        self._parameters.add(read)
        self._owners[read] = self._layers[name]
        self._set_outputs(node, read, (tensor,))
        self.buffers.colocate(variable, read)

    def _add_call(self, node: torch.fx.Node) -> None:
        call = call_of(node)
        if call is None:
            raise ValueError(f"{node.name}: calls {node.target}, which is no ATen op")
        sources = self._sources(node)
        tensors = call.outputs or call.written[:1]  # an update returns nothing; its output is the parameter
        outputs = tuple(_output(tensor, _alias(tensor, sources)) for tensor in tensors)
        kernel = bool(call.written) or any(output.alias_of is None for output in outputs)
        described = self._op(node, call, outputs, kernel)
        of_parameters = bool(sources) and self._parameters.issuperset(op for op, _ in sources)
        op = self._append(replace(described, time_step=None) if of_parameters else described, sources)
        if of_parameters:
            self._parameters.add(op)
        self.buffers.use(op, {ref: tensor for ref, tensor in sources.items() if not _among(tensor, call.unread)})
        if needs_its_storage(call):
            self._colocate_views(op, next(ref for ref, tensor in sources.items() if tensor is call.arguments["self"]))
        if kernel:
            self.buffers.read(op, [tensor for tensor in call.inputs if not _among(tensor, call.unread)])
            self.buffers.write(op, call.written)
            self._write(op, [ref for ref, tensor in sources.items() if _among(tensor, call.written)])
        self._set_outputs(node, op, tensors)
        if scope_of(node).phase == "update" and call.written:
            self._note_update(op, sources)

    def _write(self, op: int, refs: Sequence[Ref]) -> None:
        """Notes an op that writes these outputs in place.

        It is colocated with every view through which it reaches a buffer: elsewhere it would write to a copy.
        """
        for root in dict.fromkeys(self._colocate_views(op, ref) for ref in refs):
            self.written[root].append(op)

    def _colocate_views(self, op: int, ref: Ref) -> Ref:
        """Colocates an op with every view from an output to the root of its aliases; returns the root."""
        viewed: Ref | None = ref
        while viewed is not None:
            (source, output) = ref = viewed
            self.buffers.colocate(source, op)
            viewed = self._ops[source].outputs[output].alias_of
        return ref

    def _sources(self, node: torch.fx.Node) -> dict[Ref, Tensor]:
        """The outputs that a node consumes, with their tensors, without the optimiser's state."""
        parents = [zip(self._refs[parent], values_of(parent), strict=False) for parent in node.all_input_nodes]
        return {ref: tensor for pairs in parents for ref, tensor in pairs if tensor is not None}

    def _op(self, node: torch.fx.Node, call: Call, outputs: tuple[Output, ...], kernel: bool) -> Op:
        scope = scope_of(node)
        name = node.name if node.name not in self._reserved else f"{node.name}/op"  # a buffer may have an op's name
        return Op(
            name, call.kind, outputs, kernel=kernel, canonical_kind=canonical_kind(call), flops=flops.flops(call),
            bytes_accessed=flops.bytes_accessed(call), workspace_bytes=flops.workspace_bytes(call),
            layer=scope.layer, block=_block(scope.layer), time_step=scope.time_step,
            phase="backward_data" if scope.phase == "backward" else scope.phase,
        )  # fmt: skip

    def _note_update(self, op: int, sources: Mapping[Ref, Tensor]) -> None:
        changed = next(
            source for source, _ in sources if self._ops[source].kind == "read" or source in self._update_layers
        )
        earlier = self._update_layers.get(changed)  # the update for another lookup in the same table
        self._update_layers[op] = earlier or self._owners[changed]

    def _append(self, op: Op, inputs: Sequence[Ref] | Mapping[Ref, Tensor]) -> int:
        self._ops.append(op if op.phase is not None else replace(op, phase="other"))
        return self.buffers.add(inputs)

    def _set_outputs(self, node: torch.fx.Node, op: int, tensors: Sequence[Tensor | None]) -> None:
        """Notes that `op` is the op of a node and has these outputs."""
        self.op_of[node], self._refs[node] = op, tuple((op, output) for output in range(len(tensors)))
        self.buffers.add_outputs(op, [tensor for tensor in tensors if tensor is not None])

    def _mark_results(self, node: torch.fx.Node) -> None:
        for op, output in (ref for parent in node.all_input_nodes for ref in self._refs[parent]):
            outputs = list(self._ops[op].outputs)
            outputs[output] = replace(outputs[output], is_result=True)
            self._ops[op] = replace(self._ops[op], outputs=tuple(outputs))

    def _phases(self) -> list[str | None]:
        """The phase of each op; gradients are split into those of data and those of weights.

        A gradient op is `backward_weight` if all updates that it reaches are of its own layer, and its path to them
        stays in this layer, except for sums of the gradients of a tied parameter.
        """
        # from the last op to the first: the layers common to all updates that an op reaches; does its path stay there?
        serves: list[frozenset[str] | None] = [None] * len(self._ops)
        stays = [True] * len(self._ops)
        for op, layers in self._update_layers.items():
            serves[op] = frozenset(layers)
        for source, output, op in sorted(self.buffers.edges, key=lambda edge: -edge[2]):
            # the norm of all gradients serves every update
            if output != CONTROL and self._ops[source].layer != CLIP_LAYER:
                serves[source] = _common(serves[source], serves[op])
                user = self._ops[op]
                stays[source] &= user.layer == self._ops[source].layer or user.phase == "update" or user.kind in SUMS
        of_weight = [
            stay and served is not None and op.layer in served
            for op, served, stay in zip(self._ops, serves, stays, strict=True)
        ]
        return [
            BACKWARD[weight] if op.phase in BACKWARD else op.phase
            for op, weight in zip(self._ops, of_weight, strict=True)
        ]


def _read_names(names: Sequence[str]) -> dict[str, str]:
    """The name of the op that reads each variable; the names of variables may contain a `/`, too.

    >>> _read_names(["table", "table/read"])
    {'table': 'table/read/read', 'table/read': 'table/read/read/read'}
    """
    used, reads = set(names), dict[str, str]()
    for name in dict.fromkeys(names):
        read = f"{name}/read"
        while read in used:
            read += "/read"
        used.add(read)
        reads[name] = read
    return reads


def _common(left: frozenset[str] | None, right: frozenset[str] | None) -> frozenset[str] | None:
    """The layers in both sets; None stands for all layers."""
    limits = [layers for layers in (left, right) if layers is not None]
    return frozenset.intersection(*limits) if limits else None


def _among(tensor: Tensor, tensors: Sequence[Tensor]) -> bool:
    """Whether a tensor is one of several, by identity."""
    return any(tensor is other for other in tensors)


def _alias(tensor: Tensor | None, sources: Mapping[Ref, Tensor]) -> Ref | None:
    """The first source that shares the tensor's storage."""
    return None if tensor is None else next((ref for ref, source in sources.items() if shares(tensor, source)), None)


def _output(tensor: Tensor | None, alias_of: Ref | None = None) -> Output:
    if tensor is None:
        return Output(0)
    return Output(tensor_bytes(tensor), tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), alias_of)


def _sums_over_time(op: Op, phase: str | None) -> bool:
    """Whether an op sums the gradients of a weight over its uses; the gradient of each use keeps its time step."""
    return phase == "backward_weight" and op.kind in SUMS


def _block(layer: str) -> int | None:
    """The number of a repeated block: the first number in a module path."""
    return next((int(part) for part in layer.split(".") if part.isdigit()), None)
