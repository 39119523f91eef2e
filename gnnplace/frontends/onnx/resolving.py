"""An ONNX graph without subgraphs, sequences and optionals, as far as constants and shapes say what they stand for.

Rounds of three steps, until all is known: ONNX's own shape inference; `folding` of small values; replacement of nodes
whose course is known by then (`unrolling`, `sequences`).
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import ModelProto, NodeProto, TypeProto, helper, shape_inference

from gnnplace.frontends.onnx.checks import MAX_NODES, described
from gnnplace.frontends.onnx.folding import ONNX_DOMAINS, computed, empty_values, is_full
from gnnplace.frontends.onnx.replacement import Facts, UndecidedError, facts_of
from gnnplace.frontends.onnx.sequences import SEQUENCE_KINDS, Wiring, unread
from gnnplace.frontends.onnx.subgraphs import NewNames, subgraphs
from gnnplace.frontends.onnx.unrolling import unrolled


def needs_resolving(node: NodeProto) -> bool:
    """Whether a node has subgraphs or handles sequences or optionals."""
    return any(subgraphs(node)) or (node.domain in ONNX_DOMAINS and node.op_type in SEQUENCE_KINDS)


def resolved(model: ModelProto, outputs: list[str]) -> dict[str, TypeProto]:
    """The types of all values that can be inferred from input shapes and constants.

    Nodes with subgraphs, sequences and optionals are replaced by the nodes that they stand for, as far as constants and
    shapes say it; other nodes of `model` stay. In `outputs`, the names of the results, a resolved sequence is replaced
    by its tensors. Raises ValueError with the reason if one of these nodes has to stay.
    """
    work, names = _copy(model), None
    while True:
        graph = shape_inference.infer_shapes(work, data_prop=True).graph
        types = {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}
        types |= {
            tensor.name: helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            for tensor in work.graph.initializer
            if tensor.name not in types
        }
        flat = not any(map(needs_resolving, model.graph.node))
        if flat and all(is_full(types.get(name)) for node in work.graph.node for name in filter(None, node.output)):
            return types
        if _fold(work, types):
            continue
        if flat:
            return types
        names = names or NewNames(model)
        _resolve(model, facts_of(work, types, names), outputs)
        work = _copy(model)


def _copy(model: ModelProto) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(model)
    return copy


def _fold(work: ModelProto, types: Mapping[str, TypeProto]) -> bool:
    """Replaces nodes by the constants that they produce, and inputs without elements; tells whether there were any."""
    graph = work.graph
    empty = list(empty_values(types, [value.name for value in graph.input]))
    constants = computed(work, types)
    if empty:
        kept = [value for value in graph.input if value.name not in {tensor.name for tensor in empty}]
        graph.ClearField("input")
        graph.input.extend(kept)
    if constants:
        nodes = [node for node in graph.node if constants.keys().isdisjoint(node.output)]
        graph.ClearField("node")
        graph.node.extend(nodes)
    graph.initializer.extend((*empty, *constants.values()))
    return bool(empty or constants)


def _resolve(model: ModelProto, facts: Facts, outputs: list[str]) -> None:
    """Replaces all nodes whose course is known. Raises ValueError with the reason if there are none."""
    wiring, reasons = Wiring(facts), []
    nodes: list[NodeProto] = []
    num_before = len(model.graph.node)
    changed = False
    for node in model.graph.node:
        try:
            flat = unrolled(node, facts) if any(subgraphs(node)) else wiring.replaced(node)
        except UndecidedError as error:
            reasons.append(f"{described(node)}: {error}")
            flat = None
        except IndexError:
            raise ValueError(f"{described(node)}: has fewer inputs than its kind takes") from None
        except ValueError as error:
            raise ValueError(f"{described(node)}: {error}") from None
        nodes += [node] if flat is None else flat.nodes
        if len(nodes) > MAX_NODES:
            raise ValueError(
                f"graph: more than {MAX_NODES} nodes after unrolling, which is the most that a graph may have"
            )
        if flat is not None:
            model.graph.value_info.extend(flat.declared)
            changed = True
    results = [(name, wiring.tensors(name)) for name in outputs]
    outputs[:] = [tensor for _, tensors in results for tensor in tensors]
    nodes = unread(nodes, wiring)
    if not changed and len(nodes) == num_before:
        builder = next(node for node in nodes if needs_resolving(node))
        raise ValueError(
            reasons[0] if reasons else f"{described(builder)}: is read by a node whose kind takes no sequences"
        )
    kept = [value for value in model.graph.output if not wiring.holds(value.name)]
    for field, values in (("node", nodes), ("output", kept)):
        model.graph.ClearField(field)
        getattr(model.graph, field).extend(values)
