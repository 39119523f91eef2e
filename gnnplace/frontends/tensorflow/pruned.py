"""The ops of one TensorFlow step: those that the fetches need, with one read for each variable.

An op that depends on the shapes of its inputs alone has control inputs in place of data inputs, as after TensorFlow's
own constant folding. `PrunedStep` holds the ops in the order of their creation, their data inputs by index and their
control inputs. The graph is flat and acyclic: control flow and function calls are refused, with their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import tensorflow as tf

from gnnplace.frontends.tensorflow.kinds import SHAPE_READERS

LOOPS = "Enter Exit NextIteration LoopCond RefEnter RefExit RefNextIteration While StatelessWhile For"
BRANCHES = "RefSwitch RefMerge Switch Merge If StatelessIf Case StatelessCase"
CALLS = "PartitionedCall StatefulPartitionedCall SymbolicGradient RemoteCall XlaLaunch"
LISTS = "TensorListReserve EmptyTensorList TensorListFromTensor TensorArrayV3"
UNROLL = "unroll it: a Python loop instead of tf.while_loop or tf.range, unroll=True for Keras' recurrent layers"
FLOW_KINDS = {
    kind: advice
    for kinds, advice in {
        LOOPS: f"is a loop; {UNROLL}",
        BRANCHES: "is a branch; decide by a Python value, or compute both sides and take one with tf.where",
        CALLS: "calls a function; inline it",
        LISTS: f"is a list of tensors of a loop; {UNROLL}, and tf.stack for what it collects",
    }.items()
    for kind in kinds.split()
}


@dataclass(frozen=True, eq=False)
class PrunedStep:
    """The ops of a step, with their data inputs `(op, output)` and their control inputs, all by index into `ops`."""

    ops: tuple[tf.Operation, ...]
    inputs: tuple[tuple[tuple[int, int], ...], ...]
    controls: tuple[tuple[int, ...], ...]
    results: frozenset[tuple[int, int]]  # fetched outputs

    @cached_property
    def index(self) -> dict[str, int]:
        """The index of each op by its name."""
        return {op.name: i for i, op in enumerate(self.ops)}

    @cached_property
    def sources(self) -> tuple[tuple[int, ...], ...]:
        """The distinct ops whose data each op reads."""
        return tuple(tuple(dict.fromkeys(src for src, _ in inputs)) for inputs in self.inputs)

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """The distinct ops that read each op's data."""
        lists: list[list[int]] = [[] for _ in self.ops]
        for dst, sources in enumerate(self.sources):
            for src in sources:
                lists[src].append(dst)
        return tuple(map(tuple, lists))

    @cached_property
    def colocated(self) -> tuple[tuple[int, ...], ...]:
        """The ops with which each op asks to be colocated (`_class`), without itself and pruned ops."""
        return tuple(
            tuple(other for name in _classes(op) if (other := self.index.get(name, i)) != i)
            for i, op in enumerate(self.ops)
        )

    @cached_property
    def order(self) -> tuple[int, ...]:
        """A topological order by data and control inputs."""
        done: dict[int, None] = {}
        for op in range(len(self.ops)):
            stack = [op]
            while stack:
                waiting = [src for src in (*self.sources[stack[-1]], *self.controls[stack[-1]]) if src not in done]
                if waiting:
                    stack += waiting
                else:
                    done[stack.pop()] = None
        return tuple(done)

    def edges(self) -> Iterator[tuple[int, int, int]]:
        """Edges `(source op, output, destination op)` in the order of the destinations; output -1 is a control edge."""
        for dst, (inputs, controls) in enumerate(zip(self.inputs, self.controls, strict=True)):
            yield from ((src, output, dst) for src, output in inputs)
            yield from ((src, -1, dst) for src in controls)


def prune(graph: tf.Graph, fetches: Sequence[str]) -> PrunedStep:
    """The step of `graph` that computes `fetches`, names of tensors (`loss:0`) or of ops (`train`).

    Raises ValueError for a name that the graph doesn't have, for control flow and function calls, and for variables
    without a handle op (reference variables, captured placeholders).
    """
    tensors = [_fetched(graph, name) for name in fetches if ":" in name]
    targets = [tensor.op for tensor in tensors] + [_fetched(graph, name) for name in fetches if ":" not in name]
    ops = _ancestors(graph, targets)
    for op in ops:
        _require_flat(op)
    first_read = _first_reads(ops)
    distinct = [op for op in ops if first_read.get(op, op) is op]
    index = {op: i for i, op in enumerate(distinct)}
    index |= {op: index[first] for op, first in first_read.items()}
    data = {op: () if op.type in SHAPE_READERS else tuple(op.inputs) for op in distinct}
    waits = {op: [tensor.op for tensor in op.inputs] if op.type in SHAPE_READERS else [] for op in distinct}
    return PrunedStep(
        ops=tuple(distinct),
        inputs=tuple(tuple((index[tensor.op], tensor.value_index) for tensor in data[op]) for op in distinct),
        controls=tuple(
            tuple(dict.fromkeys(index[source] for source in (*waits[op], *op.control_inputs))) for op in distinct
        ),
        results=frozenset((index[tensor.op], tensor.value_index) for tensor in tensors),
    )


def _fetched(graph: tf.Graph, name: str) -> tf.Tensor | tf.Operation:
    try:
        return graph.as_graph_element(name)
    except (KeyError, ValueError) as error:
        raise ValueError(f"fetches: {name!r} names no tensor or op of the graph") from error


def _require_flat(op: tf.Operation) -> None:
    if op.type in FLOW_KINDS or op.graph._is_function(op.type):
        raise ValueError(
            f"op {op.name!r}: a step must be flat, but {op.type} "
            f"{FLOW_KINDS.get(op.type, 'calls a function; inline it')}"
        )
    if op.type in ("Variable", "VariableV2"):
        raise ValueError(f"op {op.name!r}: a reference variable; use resource variables")
    if op.type == "Placeholder" and op.outputs[0].dtype == tf.resource:
        raise ValueError(f"op {op.name!r}: a captured variable; map it to a VarHandleOp (import_graph_def, input_map)")


def _ancestors(graph: tf.Graph, targets: Sequence[tf.Operation]) -> list[tf.Operation]:
    seen, stack = set(targets), list(targets)
    while stack:
        op = stack.pop()
        for source in (*(tensor.op for tensor in op.inputs), *op.control_inputs):
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return [op for op in graph.get_operations() if op in seen]


def _classes(op: tf.Operation) -> list[str]:
    names = op.node_def.attr["_class"].list.s if "_class" in op.node_def.attr else ()
    return [name.decode().removeprefix("loc:@") for name in names if name.startswith(b"loc:@")]


def _first_reads(ops: Sequence[tf.Operation]) -> dict[tf.Operation, tf.Operation]:
    """For each read of a variable, the first read of that variable with the same control inputs: both see one value."""
    first: dict[tuple, tf.Operation] = {}
    reads = {}
    for op in ops:
        if op.type == "ReadVariableOp":
            after = tuple(sorted(source.name for source in op.control_inputs))
            reads[op] = first.setdefault((op.inputs[0].op.name, after), op)
    return reads
