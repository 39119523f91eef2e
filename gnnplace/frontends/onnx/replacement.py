"""The nodes that replace a node of an ONNX graph, and the facts about values that decide what they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from gnnplace.frontends.network.network import shown
from gnnplace.frontends.onnx.folding import ONNX_DOMAINS, Types, is_full, sizes, small_initializers
from gnnplace.frontends.onnx.subgraphs import Body, NewNames, copied

MAX_UNROLLED = 200_000  # nodes of all turns of one loop
AXES_INPUT, NUM_OUTPUTS = 13, 18  # the opsets since which axes are an input, and Split needs its number of outputs


class UndecidedError(Exception):
    """What a node computes depends on values that are not known before the step."""


class Facts(NamedTuple):
    """What is known of a model's values: small constants, types; the opset; and new names for values."""

    model: ModelProto
    values: Mapping[str, TensorProto]
    types: Types
    opset: int
    names: NewNames

    def number(self, name: str, what: str) -> int:
        """The whole number that a value is. Raises UndecidedError, with `what` it is for, if that is not known."""
        return int(self.value(name, what).reshape(-1)[0])

    def value(self, name: str, what: str) -> np.ndarray:
        """A small constant. Raises UndecidedError, with `what` it is for, if it is not known."""
        if name not in self.values:
            raise UndecidedError(f"{what} {shown(name)} depends on values, which are not known before the step")
        return numpy_helper.to_array(self.values[name])

    def shape(self, name: str) -> list[int]:
        """The shape of a value. Raises UndecidedError if it is not known."""
        if not is_full(self.types.get(name)):
            raise UndecidedError(f"the shape of {shown(name)} depends on values, which are not known before the step")
        return sizes(self.types[name])


def facts_of(model: ModelProto, types: Types, names: NewNames) -> Facts:
    """The facts about a model whose known values are initializers."""
    opset = max((entry.version for entry in model.opset_import if entry.domain in ONNX_DOMAINS), default=1)
    return Facts(model, small_initializers(model), types, opset, names)


class Replacement:
    """The nodes that replace one node, and the declared types of values that they produce."""

    def __init__(self, scope: str, facts: Facts) -> None:
        self.scope, self.facts = scope, facts
        self.nodes: list[NodeProto] = []
        self.declared: list[ValueInfoProto] = []
        self._axes: dict[int, str] = {}

    def add(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        within = next(iter(filter(None, outputs))).rpartition("/")[0]
        name = self.facts.names.node(f"{within if within.startswith(self.scope) else self.scope}/{kind}")
        self.nodes.append(helper.make_node(kind, list(inputs), list(outputs), name=name, **attributes))

    def constant(self, name: str, value: np.ndarray) -> str:
        """Adds a constant under a new name; returns the name."""
        name = self.name(name)
        self.constant_as(name, value)
        return name

    def constant_as(self, output: str, value: np.ndarray | TensorProto) -> None:
        """Adds a constant that produces the value `output`."""
        tensor = value if isinstance(value, TensorProto) else numpy_helper.from_array(value, output)
        self.nodes.append(helper.make_node("Constant", [], [output], name=self.facts.names.node(output), value=tensor))

    def name(self, name: str) -> str:
        """A new name for a value."""
        return self.facts.names.value(f"{self.scope}/{name}")

    def copy(self, body: Body, scope: str, arguments: Mapping[str, str], results: Sequence[str]) -> tuple[str, ...]:
        """Adds a copy of a body; returns the names of its outputs."""
        copy = copied(body, scope, arguments, results, self.facts.names)
        self.nodes += copy.nodes
        self.declared += copy.declared
        if len(self.nodes) > MAX_UNROLLED:
            raise ValueError(f"has more than {MAX_UNROLLED} nodes in all its turns; that many are not unrolled")
        return copy.outputs

    def squeezed(self, kind: str, value: str, axis: int, output: str) -> None:
        """Adds a `Squeeze` or `Unsqueeze` of one axis."""
        if self.facts.opset < AXES_INPUT:
            self.add(kind, [value], [output], axes=[axis])
        else:
            if axis not in self._axes:
                self._axes[axis] = self.constant("axes", np.array([axis]))
            self.add(kind, [value, self._axes[axis]], [output])

    def split(self, value: str, axis: int, parts: Sequence[str], lengths: Sequence[int] = ()) -> None:
        """Adds a `Split` of a value into parts of equal or given lengths."""
        if not lengths and self.facts.opset >= NUM_OUTPUTS:
            self.add("Split", [value], parts, axis=axis, num_outputs=len(parts))
        elif not lengths:
            self.add("Split", [value], parts, axis=axis)
        elif self.facts.opset < AXES_INPUT:
            self.add("Split", [value], parts, axis=axis, split=list(lengths))
        else:
            self.add("Split", [value, self.constant("split", np.array(lengths))], parts, axis=axis)

    def slices(self, value: str, axis: int, names: Sequence[str]) -> list[str]:
        """Adds the slices of a value along an axis, without that axis; returns their names."""
        if not names:
            return []
        parts = [self.name(f"{name}/part") for name in names]
        slices = [self.name(name) for name in names]
        self.split(value, axis, parts)
        for part, name in zip(parts, slices, strict=True):
            self.squeezed("Squeeze", part, axis, name)
        return slices

    def stacked(self, values: Sequence[str], axis: int, output: str) -> None:
        """Adds the values stacked along a new axis. Raises UndecidedError for no values of unknown shape."""
        if not values:
            shape = self.facts.shape(output)
            dtype = self.facts.types[output].tensor_type.elem_type
            self.constant_as(output, helper.make_tensor(output, dtype, shape, []))
            return
        parts = [self.name(f"{value.removeprefix(f'{self.scope}/')}/part") for value in values]
        for value, part in zip(values, parts, strict=True):
            self.squeezed("Unsqueeze", value, axis, part)
        self.add("Concat", parts, [output], axis=axis)
