"""Sequences and optionals of an ONNX graph, resolved to the tensors they hold: building them moves no data.

What a sequence holds is known where the positions and lengths that build it are: `SequenceAt` then names one tensor,
`ConcatFromSequence` is a `Concat` of tensors. A sequence that is a result of the model stands for its tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import NodeProto

from gnnplace.frontends.network.network import shown
from gnnplace.frontends.onnx.folding import ONNX_DOMAINS
from gnnplace.frontends.onnx.replacement import Facts, Replacement, UndecidedError
from gnnplace.frontends.onnx.subgraphs import reads, scope_of


class Wiring:
    """The tensors of each sequence and the value of each optional (None: absent), by name, in the order of nodes."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._sequences: dict[str, list[str]] = {}
        self._optionals: dict[str, str | None] = {}

    def holds(self, name: str) -> bool:
        """Whether a value is a resolved sequence or optional."""
        return name in self._sequences or name in self._optionals

    def tensors(self, name: str) -> list[str]:
        """The tensors that a value stands for: those of a sequence or optional, or itself."""
        if name in self._optionals:
            value = self._optionals[name]
            return [] if value is None else self.tensors(value)
        return self._sequences.get(name, [name])

    def replaced(self, node: NodeProto) -> Replacement | None:
        """The nodes on tensors that replace a node; None if it stays.

        A node that builds a sequence or optional is noted, and stays while it has readers. Raises UndecidedError if a
        value decides what it builds, ValueError for a malformed node.
        """
        rule = _RULES.get(node.op_type) if node.domain in ONNX_DOMAINS else None
        if rule is None or not node.output:
            return None
        flat = Replacement(scope_of(node), self._facts)
        rule(self, node, flat)
        return flat if flat.nodes else None

    def construct(self, node: NodeProto, _: Replacement) -> None:
        self._sequences[node.output[0]] = list(node.input)

    def insert(self, node: NodeProto, _: Replacement) -> None:
        values = self._sequence(node.input[0])
        index = self._position(node, 2, len(values), len(values)) if any(node.input[2:]) else len(values)
        self._sequences[node.output[0]] = [*values[:index], node.input[1], *values[index:]]

    def erase(self, node: NodeProto, _: Replacement) -> None:
        values = self._sequence(node.input[0])
        index = self._position(node, 1, len(values), len(values) - 1) if any(node.input[1:]) else len(values) - 1
        self._sequences[node.output[0]] = [value for number, value in enumerate(values) if number != index]

    def at(self, node: NodeProto, flat: Replacement) -> None:
        values = self._sequence(node.input[0])
        flat.add("Identity", [values[self._position(node, 1, len(values), len(values) - 1)]], node.output)

    def length(self, node: NodeProto, flat: Replacement) -> None:
        flat.constant_as(node.output[0], np.array(len(self._sequence(node.input[0])), np.int64))

    def concat(self, node: NodeProto, flat: Replacement) -> None:
        values = self._sequence(node.input[0])
        attributes = {attribute.name: attribute.i for attribute in node.attribute}
        if not values:
            raise ValueError(f"concatenates the sequence {shown(node.input[0])}, which is empty")
        if attributes.get("new_axis", 0):
            flat.stacked(values, attributes.get("axis", 0), node.output[0])
        else:
            flat.add("Concat", values, node.output, axis=attributes.get("axis", 0))

    def split(self, node: NodeProto, flat: Replacement) -> None:
        """SplitToSequence: slices of 1, of a given length (the last may be shorter) or of given lengths."""
        attributes = {attribute.name: attribute.i for attribute in node.attribute}
        axis, given = attributes.get("axis", 0), any(node.input[1:])
        shape = self._facts.shape(node.input[0])
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"splits {shown(node.input[0])} of the shape {shape} along axis {axis}")
        lengths = self._facts.value(node.input[1], "the lengths of parts:") if given else np.array(1)
        if not lengths.ndim and lengths < 1:
            raise ValueError(f"splits {shown(node.input[0])} into parts of length {lengths}")
        if lengths.ndim:
            parts = [int(length) for length in lengths]
        else:
            step = int(lengths)
            parts = [min(step, shape[axis] - start) for start in range(0, shape[axis], step)]
        names = [f"part_{index}" for index in range(len(parts))]
        if not given and not attributes.get("keepdims", 1):
            names = flat.slices(node.input[0], axis, names)
        else:
            names = [flat.name(name) for name in names]
            flat.split(node.input[0], axis, names, parts)
        flat.add("SequenceConstruct", names, node.output)
        self._sequences[node.output[0]] = names

    def optional(self, node: NodeProto, _: Replacement) -> None:
        self._optionals[node.output[0]] = next(iter(filter(None, node.input)), None)

    def has_element(self, node: NodeProto, flat: Replacement) -> None:
        name = next(iter(filter(None, node.input)), None)
        while name is not None and name in self._optionals:
            name = self._optionals[name]
        self._check_resolved(name)
        flat.constant_as(node.output[0], np.array(name is not None))

    def identity(self, node: NodeProto, flat: Replacement) -> None:
        """Identity of a sequence or optional, and OptionalGetElement."""
        name: str | None = node.input[0]
        if node.op_type == "OptionalGetElement":
            while name is not None and name in self._optionals:
                name = self._optionals[name]
            if name is None:
                raise ValueError(f"reads the optional {shown(node.input[0])}, which is absent")
            self._check_resolved(name)
        if name in self._sequences:
            self._sequences[node.output[0]] = self._sequences[name]
        elif name in self._optionals:
            self._optionals[node.output[0]] = self._optionals[name]
        elif node.op_type != "Identity" and name is not None:
            flat.add("Identity", [name], node.output)

    def _sequence(self, name: str) -> list[str]:
        if name not in self._sequences:
            raise UndecidedError(f"the length of the sequence {shown(name)} depends on values")
        return self._sequences[name]

    def _check_resolved(self, name: str | None) -> None:
        """Raises UndecidedError for an optional or sequence that is none of the resolved ones."""
        if name is None or name in self._sequences:
            return
        which = self._facts.types[name].WhichOneof("value") if name in self._facts.types else None
        if which != "tensor_type":
            raise UndecidedError(f"whether the optional {shown(name)} holds a value depends on values")

    def _position(self, node: NodeProto, index: int, count: int, last: int) -> int:
        """A position in a sequence of `count`, up to `last`; a negative one counts from the end."""
        position = self._facts.number(node.input[index], "the position")
        if not -count <= position <= last:
            raise ValueError(f"position {position} in a sequence of {count}")
        return position + count if position < 0 else position


def unread(nodes: Sequence[NodeProto], wiring: Wiring) -> list[NodeProto]:
    """Nodes without those that build a resolved sequence or optional that no other node reads."""
    read: set[str] = set()
    kept = []
    for node in reversed(nodes):
        builds = all(wiring.holds(name) for name in node.output if name)
        if builds and any(node.output) and read.isdisjoint(node.output):
            continue
        kept.append(node)
        read.update(reads(node))
    return kept[::-1]


_RULES: dict[str, Callable[[Wiring, NodeProto, Replacement], None]] = {
    "SequenceConstruct": Wiring.construct, "SequenceEmpty": Wiring.construct, "SequenceInsert": Wiring.insert,
    "SequenceErase": Wiring.erase, "SequenceAt": Wiring.at, "SequenceLength": Wiring.length,
    "ConcatFromSequence": Wiring.concat, "SplitToSequence": Wiring.split, "Optional": Wiring.optional,
    "OptionalGetElement": Wiring.identity, "OptionalHasElement": Wiring.has_element, "Identity": Wiring.identity,
}  # fmt: skip
SEQUENCE_KINDS = _RULES.keys() - {"Identity"}
