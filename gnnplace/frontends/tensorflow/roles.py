"""The phase, layer and time step of each op of a TensorFlow step, derived from its structure and name scopes.

- **Gradient ops** stand in a scope `gradients` or `gradient_tape`; the rest of their name leads to their *forward op*
  (`gradients/lstm_0/step_3/MatMul_grad/MatMul_1` belongs to `lstm_0/step_3/MatMul`, `gradients/h_gradient_sum/AddN` to
  `h`). A gradient tape sums gradients (AddN) outside its scope; such sums are gradient ops, too.
- **Phase.** A gradient op is `backward_weight` if its forward op uses a parameter and its gradient goes to no other
  forward op; sums of such gradients are `backward_weight` as well. All other gradient ops are `backward_data`. Ops that
  gradients or fetched tensors need are `forward`. Ops that write variables, or only serve such ops, are `update`. All
  others are `other`.
- **Layer.** The name scope of the op, without the scopes of an op (`MatMul/ReadVariableOp`) and without its time step.
  A gradient op has the layer of its forward op. Without one it has that of the op with which it asks to be colocated
  (sums), or its own name scope (a tape's ops are in the scope of their forward op), or else that of the ops that read
  it, as update ops have. Writes, reads and slots have the layer of their variable.
- **Time step.** The number in a scope `step_<number>`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from gnnplace.frontends.tensorflow.kinds import writes_variable
from gnnplace.frontends.tensorflow.pruned import PrunedStep

GRADIENT_SCOPE = re.compile(r"(?:^|/)(?:gradients(?:_\d+)?|(?P<tape>gradient_tape))/")
TAPE_SCOPE = "gradient_tape/"
GRADIENT_SUFFIX = re.compile(r"_(?:grad|gradient_sum)$")
TIME_STEP = re.compile(r"(?:^|/)step_(\d+)(?=/|$)")

MIXED = -2  # a gradient that goes to several forward ops


@dataclass(frozen=True, eq=False)
class Roles:
    """The roles of the ops of one step, by their index."""

    step: PrunedStep

    @cached_property
    def forward_op(self) -> tuple[int | None, ...]:
        """The forward op of each gradient op according to its name; None if there is none."""
        return tuple(self._forward_op(op.name) for op in self.step.ops)

    @cached_property
    def backward(self) -> tuple[bool, ...]:
        """Whether an op stands in a scope of gradients, or is a sum of such ops."""
        backward = [GRADIENT_SCOPE.search(op.name) is not None for op in self.step.ops]
        for i in self.step.order:
            if self.step.ops[i].type == "AddN" and not backward[i]:
                backward[i] = all(backward[src] for src in self.step.sources[i])
        return tuple(backward)

    @cached_property
    def phase(self) -> tuple[str, ...]:
        """The phase of each op."""
        after = self._after([i for i, backward in enumerate(self.backward) if backward])
        needed = self._before(
            [i for i, backward in enumerate(self.backward) if backward] + [op for op, _ in self.step.results], after
        )
        writers = [i for i, op in enumerate(self.step.ops) if writes_variable(op.type)]
        serves = self._before(writers, set()) | self._after(writers)
        return tuple(
            ("backward_weight" if weight else "backward_data") if backward
            else "forward" if i in needed and i not in after
            else "update" if i in serves else "other"
            for i, (backward, weight) in enumerate(zip(self.backward, self._weight_gradient, strict=True))
        )  # fmt: skip

    @cached_property
    def layer(self) -> tuple[str | None, ...]:
        """The layer of each op."""
        layers: list[str | None] = [None] * len(self.step.ops)
        for i in reversed(self.step.order):
            layers[i] = self._layer(i, layers)
        for i in self.step.order:
            if self.step.ops[i].type == "ReadVariableOp":
                layers[i] = layers[self.step.inputs[i][0][0]]
        return tuple(layers)

    @cached_property
    def time_step(self) -> tuple[int | None, ...]:
        """The time step of each op. Sums of weight gradients over time and updates have none."""
        timeless = [
            phase in ("update", "backward_weight") and self.forward_op[i] is None for i, phase in enumerate(self.phase)
        ]
        return tuple(
            None if timeless[i] else _time_step(self.step.ops[i if named is None else named].name)
            for i, named in enumerate(self._named)
        )

    @cached_property
    def _named(self) -> tuple[int | None, ...]:
        """The forward op of each gradient op by its name or, for sums, by that of the op that `_class` names."""
        return tuple(
            self.forward_op[colocated[0]] if forward is None and backward and colocated else forward
            for forward, backward, colocated in zip(self.forward_op, self.backward, self.step.colocated, strict=True)
        )

    def _forward_op(self, name: str) -> int | None:
        match = GRADIENT_SCOPE.search(name)
        parts = name[match.end() :].split("/") if match else []
        prefixes = ["/".join(parts[:length]) for length in range(len(parts) - 1, 0, -1)]
        if match and not match["tape"]:
            prefixes = [GRADIENT_SUFFIX.sub("", prefix) for prefix in prefixes if GRADIENT_SUFFIX.search(prefix)]
        return next((self.step.index[prefix] for prefix in prefixes if prefix in self.step.index), None)

    def _after(self, ops: list[int]) -> set[int]:
        """The ops behind `ops` by data or control edges, directly or indirectly."""
        seen: set[int] = set()
        roots = set(ops)
        for i in self.step.order:
            if any(src in seen or src in roots for src in (*self.step.sources[i], *self.step.controls[i])):
                seen.add(i)
        return seen

    def _before(self, ops: list[int], barrier: set[int]) -> set[int]:
        """`ops` and the ops whose data they need, directly or indirectly, without `barrier` and the ops behind it."""
        seen, stack = set(ops), list(ops)
        while stack:
            for src in self.step.sources[stack.pop()]:
                if src not in seen and src not in barrier:
                    seen.add(src)
                    stack.append(src)
        return seen

    @cached_property
    def _parameter(self) -> tuple[bool, ...]:
        """Whether an op's value depends on variables, and apart from them on constants alone."""
        parameter = [False] * len(self.step.ops)
        constant = [False] * len(self.step.ops)
        for i in self.step.order:
            kind, sources = self.step.ops[i].type, self.step.sources[i]
            constant[i] = kind == "Const" or (bool(sources) and all(constant[src] for src in sources))
            parameter[i] = kind == "VarHandleOp" or (
                any(parameter[src] for src in sources) and all(parameter[src] or constant[src] for src in sources)
            )
        return tuple(parameter)

    @cached_property
    def _weight_gradient(self) -> tuple[bool, ...]:
        """Whether each op is part of the gradient of a weight."""
        weight = [False] * len(self.step.ops)
        goes_to = self._gradient_goes_to
        for i in self.step.order:
            forward = self.forward_op[i]
            if not self.backward[i]:
                continue
            if forward is None or self._parameter[forward]:
                weight[i] = any(weight[src] for src in self.step.sources[i])
            else:
                uses = any(self._parameter[src] for src in self.step.sources[forward])
                weight[i] = uses and goes_to[i] in (None, forward)
        return tuple(weight)

    @cached_property
    def _gradient_goes_to(self) -> tuple[int | None, ...]:
        """The forward op, other than parameters, whose gradient ops read each gradient op, or None or MIXED."""
        goes_to: list[int | None] = [None] * len(self.step.ops)
        for i in reversed(self.step.order):
            targets = set()
            for dst in self.step.consumers[i]:
                if self.backward[dst]:
                    forward = self.forward_op[dst]
                    targets |= {goes_to[dst]} | ({None} if forward is None or self._parameter[forward] else {forward})
            targets.discard(None)
            goes_to[i] = targets.pop() if len(targets) == 1 else MIXED if targets else None
        return tuple(goes_to)

    def _layer(self, i: int, layers: list[str | None]) -> str | None:
        named = self._named[i]
        op = self.step.ops[i]
        if self.backward[i]:
            if named is not None:
                return self._own_layer(named)
            of_tape = self._own_layer(i) if TAPE_SCOPE in op.name else None
            return of_tape or self._served(i, layers) or self._added(i)
        if writes_variable(op.type):
            return self._own_layer(self._owner[self.step.inputs[i][0][0]])
        if op.type == "VarHandleOp":
            return self._own_layer(self._owner[i])
        if self.phase[i] == "update":
            return self._served(i, layers)
        return self._own_layer(i)

    def _served(self, i: int, layers: list[str | None]) -> str | None:
        """The layer of op i's consumers if they share one, else its own."""
        served = {layers[dst] for dst in self.step.consumers[i]}
        return served.pop() if len(served) == 1 else self._own_layer(i)

    def _added(self, i: int) -> str | None:
        """The layer of the first term of a sum that has one."""
        named = (self._named[src] for src in self.step.sources[i])
        terms = (
            self._own_layer(src if name is None else name)
            for src, name in zip(self.step.sources[i], named, strict=True)
        )
        return next(filter(None, terms), None)

    @cached_property
    def _owner(self) -> tuple[int, ...]:
        """The variable to which a handle belongs: itself or, for an optimiser slot, the variable that it serves.

        That is the first variable of the slot's update kernel. If the update consists of several ops, it is the only
        other variable that they write.
        """
        owner = list(range(len(self.step.ops)))
        for i, op in enumerate(self.step.ops):
            if writes_variable(op.type):
                first, *rest = (src for src, _ in self.step.inputs[i])
                for src in rest:
                    if self.step.ops[src].type == "VarHandleOp":
                        owner[src] = first
        for i, op in enumerate(self.step.ops):
            if (
                op.type == "VarHandleOp"
                and owner[i] == i
                and self.phase[i] == "update"
                and len(served := self._written_with(i)) == 1
            ):
                owner[i] = served.pop()
        return tuple(owner[other] for other in owner)

    def _written_with(self, handle: int) -> set[int]:
        """The other variables that an update writes, computed from the variable `handle`."""
        seen, stack = {handle}, [handle]
        while stack:
            for dst in self.step.consumers[stack.pop()]:
                if dst not in seen and self.phase[dst] == "update":
                    seen.add(dst)
                    stack.append(dst)
        return {self.step.inputs[i][0][0] for i in seen if writes_variable(self.step.ops[i].type)} - {handle}

    def _own_layer(self, i: int) -> str | None:
        """The name scope of op i, up to the first scope with the name of an op, without its time step."""
        parts = self.step.ops[i].name.split("/")
        length = next(n for n in range(1, len(parts) + 1) if "/".join(parts[:n]) in self.step.index)
        scope = TIME_STEP.sub("", "/".join(parts[: length - 1]))
        return GRADIENT_SCOPE.sub("", scope + "/").strip("/") or None if scope else None


def _time_step(name: str) -> int | None:
    match = TIME_STEP.search(name)
    return int(match[1]) if match else None
