"""Control flow of an ONNX graph whose course is known before the step: the branch of an `If`, the turns of a loop.

An `If` whose condition is known is replaced by its branch. A `Scan` takes as many turns as its inputs have slices; a
`Loop` whose trip count and conditions follow from constants and shapes takes a known number, too. Each turn becomes a
copy of the body in the name scope `<node>/turn_<number>`, from 0. A function of ONNX that takes subgraphs
(`SequenceMap`, `FlexAttention`) is replaced by its body. Everything else depends on values: `UndecidedError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import FunctionProto, ModelProto, NodeProto

from gnnplace.frontends.network.network import shown
from gnnplace.frontends.onnx.folding import (
    COMPUTED_KINDS,
    GROWING_KINDS,
    ONNX_DOMAINS,
    run,
)
from gnnplace.frontends.onnx.replacement import Facts, Replacement, UndecidedError
from gnnplace.frontends.onnx.subgraphs import Body, body_of, reads, scope_of

MAX_TURNS = 10_000  # of one loop
SCAN_WITHOUT_BATCH = 9


def unrolled(node: NodeProto, facts: Facts) -> Replacement:
    """The nodes that a node with subgraphs stands for.

    Raises UndecidedError if that depends on values, ValueError for a malformed node and above the limits.
    """
    flat = Replacement(scope_of(node), facts)
    rule = _RULES.get(node.op_type) if node.domain in ONNX_DOMAINS else None
    (rule or _function)(node, flat)
    return flat


def _if(node: NodeProto, flat: Replacement) -> None:
    condition = flat.facts.number(_input(node, 0), "its condition")
    branch = "then_branch" if condition else "else_branch"
    flat.copy(_body(node, branch, 0, len(node.output)), f"{flat.scope}/{branch}", {}, node.output)


def _loop(node: NodeProto, flat: Replacement) -> None:
    states = node.input[2:]
    body = _body(node, "body", 2 + len(states), 1 + len(node.output))
    turns = _loop_turns(node, body, flat.facts)
    number, condition = body.inputs[:2]
    body = _without_condition(body)
    used = {name for inner in body.nodes for name in reads(inner)} | set(body.outputs)

    def constants(turn: int) -> dict[str, str]:
        values = {number: np.array(turn, np.int64), condition: np.array(True)}
        return {name: flat.constant(f"turn_{turn}/{name}", value) for name, value in values.items() if name in used}

    _take(flat, body, turns, states, body.inputs[2:], node.output, constants, [(0, 0)] * len(node.output))


def _scan(node: NodeProto, flat: Replacement) -> None:
    batched = flat.facts.opset < SCAN_WITHOUT_BATCH
    inputs = node.input[1:] if batched else node.input
    num_scanned = _integer(node, "num_scan_inputs", 0)
    num_states = len(inputs) - num_scanned
    if num_scanned < 1 or num_states < 0:
        raise ValueError(f"scans {num_scanned} of its {len(inputs)} inputs")
    body = _body(node, "body", len(inputs), len(node.output))
    directions = "directions" if batched else "scan_input_directions"
    scanned = _paired(node, num_scanned, "scan_input_axes", directions)
    stacked = _paired(node, len(node.output) - num_states, "scan_output_axes", "scan_output_directions")
    if not batched:
        _scan_sample(flat, body, inputs, node.output, scanned, stacked)
        return
    shape = flat.facts.shape(inputs[num_states])
    if len(shape) < 2:
        raise ValueError(
            f"the scanned input {shown(inputs[num_states])} has the shape {shape}, without batch or sequence"
        )
    if node.input[0] and (flat.facts.value(node.input[0], "the lengths in") != shape[1]).any():
        raise ValueError(f"its sequences have unequal lengths ({shown(node.input[0])}); pad them to {shape[1]}")
    samples = [flat.slices(name, 0, [f"sample_{sample}/{name}" for sample in range(shape[0])]) for name in inputs]
    results = [
        [flat.name(f"sample_{sample}/{name}") if name else "" for name in node.output] for sample in range(shape[0])
    ]
    for sample, outputs in enumerate(results):
        inner = Replacement(f"{flat.scope}/sample_{sample}", flat.facts)
        _scan_sample(inner, body, [parts[sample] for parts in samples], outputs, scanned, stacked, shape[1])
        flat.nodes += inner.nodes
        flat.declared += inner.declared
    for index, name in enumerate(node.output):
        if name:
            flat.stacked([outputs[index] for outputs in results], 0, name)


def _scan_sample(
    flat: Replacement, body: Body, inputs: Sequence[str], outputs: Sequence[str], scanned: Sequence[tuple[int, int]],
    stacked: Sequence[tuple[int, int]], turns: int | None = None,
) -> None:  # fmt: skip
    """Adds the turns of one scan; `scanned` and `stacked` are axes and directions (1: backwards)."""
    num_states = len(inputs) - len(scanned)
    if turns is None:
        turns = _length(inputs[num_states], scanned[0][0], flat.facts)
    _check_turns(turns)
    slices: dict[str, list[str]] = {}
    for name, argument, (axis, backwards) in zip(inputs[num_states:], body.inputs[num_states:], scanned, strict=True):
        order = range(turns - 1, -1, -1) if backwards else range(turns)
        parts = flat.slices(name, axis, [f"turn_{turn}/{argument}" for turn in order])
        slices[argument] = parts[::-1] if backwards else parts
    _take(
        flat, body, turns, inputs[:num_states], body.inputs[:num_states], outputs,
        lambda turn: {argument: parts[turn] for argument, parts in slices.items()},
        [(0, 0)] * num_states + list(stacked),
    )  # fmt: skip


def _take(
    flat: Replacement, body: Body, turns: int, states: Sequence[str], arguments: Sequence[str], outputs: Sequence[str],
    given: Callable[[int], dict[str, str]], stacks: Sequence[tuple[int, int]],
) -> None:  # fmt: skip
    """Adds the turns of a loop. A turn reads the states of the one before and what is `given` for its number.

    The first `outputs` are the last states; each of the others stacks a value of all turns, along the axis and in the
    direction that `stacks` has for it.
    """
    num_states, values = len(states), list(states)
    parts: list[list[str]] = [[] for _ in outputs]
    for turn in range(turns):
        results = outputs[:num_states] if turn == turns - 1 else ()
        bound = dict(zip(arguments, values, strict=True)) | given(turn)
        produced = flat.copy(body, f"{flat.scope}/turn_{turn}", bound, results)
        values = list(produced[:num_states])
        for index, name in enumerate(produced[: len(outputs)]):
            parts[index].append(name)
    for index, output in enumerate(outputs):
        if not output:
            continue
        if index >= num_states:
            axis, backwards = stacks[index]
            flat.stacked(parts[index][::-1] if backwards else parts[index], axis, output)
        elif not turns:
            flat.add("Identity", [values[index]], [output])


def _loop_turns(node: NodeProto, body: Body, facts: Facts) -> int:
    """The number of turns of a `Loop`. Raises UndecidedError if it does not follow from constants and shapes."""
    most = facts.number(node.input[0], "its trip count") if _input(node, 0) else None
    condition = facts.value(node.input[1], "its condition") if _input(node, 1) else np.array(True)
    nodes, states = _condition_of(body)
    number, again = body.inputs[:2]
    leaves = {name for inner in nodes for name in inner.input if name}
    leaves = (leaves | {body.outputs[0]}) - {name for inner in nodes for name in inner.output} - set(body.inputs)
    values = {name: facts.value(name, "whether it goes on:") for name in leaves}
    values |= {body.inputs[state]: facts.value(node.input[state], "whether it goes on:") for state in states}
    turns, steady = 0, not states and not any(number in inner.input for inner in nodes)
    while condition.any() and (most is None or turns < most):
        if steady and turns:
            if most is None:
                raise ValueError("never ends: its condition stays true, and it has no trip count")
            turns = most
            break
        results = [body.outputs[0], *(body.outputs[state - 1] for state in states)]
        values |= {number: np.array(turns, np.int64), again: condition}
        ran = _computed(nodes, values, results, facts.model)
        condition = ran[0]
        values |= {body.inputs[state]: value for state, value in zip(states, ran[1:], strict=True)}
        turns += 1
        _check_turns(turns)
    _check_turns(turns)
    return turns


def _computed(
    nodes: Sequence[NodeProto], values: Mapping[str, np.ndarray], results: Sequence[str], model: ModelProto
) -> list[np.ndarray]:
    """The values of `results`, which nodes produce or which are given."""
    produced = {name for node in nodes for name in node.output}
    wanted = list(dict.fromkeys(name for name in results if name in produced))
    read = {name for node in nodes for name in node.input}
    ran = run(nodes, {name: value for name, value in values.items() if name in read}, wanted, model) if wanted else []
    if ran is None:
        raise UndecidedError("whether it goes on can't be computed")
    everything = dict(values) | dict(zip(wanted, ran, strict=True))
    return [everything[name] for name in results]


def _condition_of(body: Body) -> tuple[list[NodeProto], list[int]]:
    """The nodes of a `Loop`'s body that its condition depends on, and the indexes of those states among its inputs.

    Raises UndecidedError if one of them is not computed before the step.
    """
    wanted = {body.outputs[0]}
    while True:
        nodes, read = _backwards(body.nodes, wanted)
        states = [index for index, name in enumerate(body.inputs) if index > 1 and name in read]
        if wanted >= (more := {body.outputs[state - 1] for state in states}):
            break
        wanted |= more
    for node in nodes:
        if node.op_type not in COMPUTED_KINDS | GROWING_KINDS or node.domain not in ONNX_DOMAINS:
            raise UndecidedError(f"whether it goes on depends on {node.op_type[:80]}, so on values")
    return nodes, states


def _backwards(nodes: Sequence[NodeProto], wanted: set[str]) -> tuple[list[NodeProto], set[str]]:
    """The nodes that values depend on, in order, and all values that these nodes read, `wanted` among them."""
    read, kept = set(wanted), []
    for node in reversed(nodes):
        if not read.isdisjoint(node.output):
            kept.append(node)
            read.update(reads(node))
    return kept[::-1], read


def _without_condition(body: Body) -> Body:
    """The body of a `Loop` without its condition, and without the nodes that serve it alone."""
    condition, _ = _backwards(body.nodes, {body.outputs[0]})
    others, _ = _backwards(body.nodes, set(body.outputs[1:]))
    alone = {id(node) for node in condition} - {id(node) for node in others}
    nodes = [node for node in body.nodes if id(node) not in alone]
    return body._replace(nodes=nodes, outputs=body.outputs[1:])


def _function(node: NodeProto, flat: Replacement) -> None:
    """A function of ONNX that takes subgraphs, and whose body ONNX builds for them."""
    imported = flat.facts.model.opset_import
    version = next((entry.version for entry in imported if entry.domain == node.domain), flat.facts.opset)
    defined = onnx.defs.has(node.op_type, node.domain)
    schema: Any = onnx.defs.get_schema(node.op_type, version, node.domain) if defined else None
    if schema is None or not schema.has_context_dependent_function:
        raise UndecidedError("has subgraphs, and how often they run is not known: its kind is none of ONNX's")
    inputs = [name for name in node.input if name]
    if not flat.facts.types.keys() >= {*inputs}:
        raise UndecidedError("the types of its inputs depend on values")
    types = [flat.facts.types[name].SerializeToString() for name in inputs]
    versions = [number for number in schema.context_dependent_function_opset_versions if number <= version]
    text = schema.get_context_dependent_function_with_opset_version(max(versions), node.SerializeToString(), types)
    function = FunctionProto.FromString(text)
    arguments = dict(zip(function.input, node.input, strict=False))
    flat.copy(Body(function.node, tuple(function.input), tuple(function.output)), flat.scope, arguments, node.output)


def _length(value: str, axis: int, facts: Facts) -> int:
    """The size of an axis of a value."""
    shape = facts.shape(value)
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"the scanned input {shown(value)} has the shape {shape}, without axis {axis}")
    return shape[axis]


def _check_turns(turns: int) -> None:
    if turns > MAX_TURNS:
        raise ValueError(f"takes {turns} turns or more; at most {MAX_TURNS} are unrolled")


def _body(node: NodeProto, name: str, num_inputs: int, num_outputs: int) -> Body:
    """The subgraph of a node. Raises ValueError if it has not these numbers of inputs and (at least) of outputs."""
    graph = next((attribute.g for attribute in node.attribute if attribute.name == name), None)
    if graph is None:
        raise ValueError(f"has no {name}")
    body = body_of(graph)
    if len(body.inputs) != num_inputs or len(body.outputs) < num_outputs:
        raise ValueError(
            f"its {name} has {len(body.inputs)} inputs and {len(body.outputs)} outputs; "
            f"{num_inputs} and {num_outputs} fit the node"
        )
    return body


def _input(node: NodeProto, index: int) -> str:
    """The name of an input, "" if it is absent."""
    return node.input[index] if index < len(node.input) else ""


def _integer(node: NodeProto, name: str, default: int) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == name), default)


def _paired(node: NodeProto, count: int, *names: str) -> list[tuple[int, int]]:
    """Two attributes of `count` integers, paired; 0 where they are absent."""
    attributes = {attribute.name: list(attribute.ints) for attribute in node.attribute}
    columns = [attributes.get(name) or [0] * count for name in names]
    if any(len(column) < count for column in columns):
        raise ValueError(f"its {' or '.join(names)} have fewer than {count} entries")
    return [(first, second) for first, second, _ in zip(*columns, range(count), strict=False)]


_RULES = {"If": _if, "Loop": _loop, "Scan": _scan}
