"""What runs once in the plain implementation: docs/execution-model.md#what-runs-once, and records of ops.

It keeps ops and edges as lists of records and asks each rule of every op. `plain_steps` has the step.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from gnnplace.graph import CONTROL, NONE, ComputationGraph, Op, Output

SMALL = 8  # bytes: a scalar
BACKWARD = {"backward_data", "backward_weight"}
Tensor = tuple[int, int]  # an op and an output of it


def records(graph: ComputationGraph) -> tuple[list[Op], list[tuple[int, int, int]]]:
    """The ops and edges of a graph."""
    owner = [(int(i), k - int(graph.output_ptr[i])) for k, i in enumerate(graph.output_op)]
    made = [
        Output(int(graph.output_bytes[k]), graph.shape(k), graph.output_dtype[k], None if a == NONE else owner[a], bool(result))
        for k, (a, result) in enumerate(zip(graph.output_alias, graph.output_is_result, strict=True))
    ]
    ops = [
        Op(
            name, graph.kind[i] or "", tuple(made[graph.output_ptr[i] : graph.output_ptr[i + 1]]), int(graph.flops[i]),
            _known(graph.bytes_accessed[i]), int(graph.persistent_bytes[i]), int(graph.workspace_bytes[i]), bool(graph.kernel[i]),
            {key: int(time) for key, time in zip(graph.given_keys, graph.given_time_ns[i], strict=True) if time != NONE},
            None if (kinds := graph.allowed[i]) is None else tuple(kinds.split(",")), graph.colocation[i], graph.layer[i],
            graph.phase[i], _known(graph.block[i]), _known(graph.time_step[i]), graph.canonical_kind[i],
        )
        for i, name in enumerate(graph.op_names)
    ]  # fmt: skip
    return ops, list(zip(graph.edge_src.tolist(), graph.edge_output.tolist(), graph.edge_dst.tolist(), strict=True))


def _known(value: int) -> int | None:
    return None if value == NONE else int(value)


def split(ops: list[Op], edges: list[tuple[int, int, int]]) -> tuple[list[Op], list[tuple[int, int, int]], list[int]]:
    """Ops that hold parameters and compute without these, variables and reads at the end; and the op that each one comes from."""
    into = {d for _, _, d in edges}
    made, joins, origin = list(ops), list(edges), list(range(len(ops)))
    for i, op in enumerate(ops):
        computes = i in into or op.flops > 0 or any(time > 0 for time in op.time_ns.values())
        if not op.persistent_bytes or op.phase == "update" or not computes:
            continue
        group, at, accessed = op.colocation or f"{op.name}/state", len(made), op.bytes_accessed
        if accessed is None:
            accessed = sum(ops[s].outputs[k].bytes for s, k, d in edges if d == i and k != CONTROL) + sum(o.bytes for o in op.outputs)
        state = Op(f"{op.name}/state", "variable", (Output(0),), persistent_bytes=op.persistent_bytes, kernel=False, allowed=op.allowed,
                   colocation=group, layer=op.layer, phase="other", canonical_kind="variable")  # fmt: skip
        weights = (Output(op.persistent_bytes, alias_of=(at, 0)),)
        made[i] = replace(op, persistent_bytes=0, bytes_accessed=accessed, colocation=group)
        made += [state, replace(state, name=f"{op.name}/read", kind="read", outputs=weights, persistent_bytes=0)]
        joins += [(at, 0, at + 1), (at + 1, 0, i)]
        origin += [i, i]
    return made, joins, origin


class Parts:
    """Which ops of a graph run once, which by rows, which write variables, and which outputs are summed, concatenated or losses."""

    def __init__(self, ops: list[Op], edges: list[tuple[int, int, int]], origin: list[int], shared: tuple[str, ...]) -> None:
        self.ops, self.edges = ops, sorted(set(edges))
        self.given = len(set(origin))
        self.split = {i for i in origin if origin.count(i) > 1}  # ops whose parameters were taken from them
        self.all = range(len(ops))
        self.reads = [[(s, k) for s, k, d in self.edges if d == i and k != CONTROL] for i in self.all]
        self.sources = [{s for s, _, d in self.edges if d == i} for i in self.all]
        self.outputs = [(i, k) for i in self.all for k in range(len(ops[i].outputs))]
        self.order = self.sorted()
        self.variables = {i for i in self.all if not self.sources[i] and ops[i].persistent_bytes}
        self.writers = {(i, v) for i in self.all for v in self.written(i)}
        self.once = self.run_once(shared)
        self.grown: set[Tensor] = set()
        self.by_rows: set[int] = set()
        self.find_rows()
        from_repeated = [(tensor, j) for j in self.all if j in self.once for tensor in self.reads[j]
                         if tensor[0] not in self.once and self.is_joined(tensor, j)]  # fmt: skip
        self.concatenated = {tensor for tensor, j in from_repeated if j in self.by_rows}
        self.summed = {tensor for tensor, j in from_repeated if j not in self.by_rows}
        self.losses = {tensor for tensor in self.outputs if self.is_loss(tensor)}

    def output(self, tensor: Tensor) -> Output:
        return self.ops[tensor[0]].outputs[tensor[1]]

    def is_joined(self, tensor: Tensor, j: int) -> bool:
        """Whether what a repeated op makes reaches an op that runs once as a sum or as a concatenation, not from each copy."""
        output = self.output(tensor)
        return output.bytes > SMALL or (j in self.by_rows and bool(output.shape))

    def sorted(self) -> list[int]:
        """The ops, each after its sources."""
        order: list[int] = []
        while len(order) < len(self.ops):
            known = set(order)
            order += [i for i in self.all if i not in known and self.sources[i] <= known]
        return order

    def root(self, tensor: Tensor) -> Tensor:
        """The output that owns the buffer."""
        named = self.output(tensor).alias_of
        return tensor if named is None else self.root(named)

    def written(self, i: int) -> set[int]:
        """The variables that an op writes in place."""
        op, touched = self.ops[i], []
        if op.kernel:
            touched += [(i, k) for k in range(len(op.outputs)) if op.outputs[k].alias_of is not None]
        if op.phase == "update" and not op.outputs:
            touched += self.reads[i]
        written = {self.root(tensor)[0] for tensor in touched} & self.variables
        if op.kernel and op.colocation is not None:  # beside a buffer that it reads, as a batch normalization is
            for v in {self.root(tensor)[0] for tensor in self.reads[i]} & self.variables:
                if self.ops[v].kind == "buffer" and self.ops[v].colocation == op.colocation:
                    written.add(v)
        return written

    def shows(self, v: int) -> set[int]:
        """The ops that show a variable as a repeated op wrote it: the writers, and aliases of it that follow one."""
        after = {i for i, written in self.writers if written == v and i not in self.once}
        for i in self.order:
            aliases = any(self.root((i, k))[0] == v for k in range(len(self.ops[i].outputs)))
            if aliases and self.sources[i] & after:
                after.add(i)
        return after

    # what runs once

    def run_once(self, shared: tuple[str, ...]) -> set[int]:
        phases = {op.phase for op in self.ops[: self.given]}
        if phases == {None} or (phases & BACKWARD and "update" not in phases):
            raise ValueError("phases don't tell what runs once")
        constants = self.constants()
        changing: set[int] = set()
        for _ in range(2):  # what is derived depends on running state, which depends on what is derived
            self.weights = self.variables | self.derived(constants, changing)
            once = self.weights | {i for i in self.all if self.is_shared(i, shared)}
            self.running = self.running_state(once | constants)
            changing |= {v for i, v in self.writers if i in self.running or self.ops[i].phase != "update"}
        updates = {i for i in self.all if self.ops[i].phase == "update"} - self.running
        behind = self.behind({i for i in updates - constants if self.sources[i]})
        once |= updates | behind
        for i in reversed(self.order):
            if i in constants and any(i in self.sources[j] for j in once):
                once.add(i)
        self.refuse(behind, once)
        return once

    def refuse(self, behind: set[int], once: set[int]) -> None:
        """Raises ValueError for ops with a kernel behind an update that read tensors of micro-batches."""
        for i in behind:
            if self.ops[i].kernel and self.ops[i].phase != "update":
                for s, k in self.reads[i]:
                    if s not in once and self.output((s, k)).bytes > SMALL:
                        raise ValueError(f"{self.ops[i].name!r} is a pass behind an update")

    def constants(self) -> set[int]:
        """Ops without a kernel that compute from nothing."""
        found: set[int] = set()
        for i in self.order:
            op = self.ops[i]
            varies = i in self.variables or op.kernel or op.canonical_kind in ("input", "random", "variable")
            if not varies and self.sources[i] <= found:
                found.add(i)
        return found

    def derived(self, constants: set[int], changing: set[int]) -> set[int]:
        """Reads, casts and transposes of weights; no kernel among them reads a variable that is `changing`."""
        found: set[int] = set()
        writers = {i for i, _ in self.writers}
        for i in self.order:
            op = self.ops[i]
            from_weights = self.variables | found
            if op.canonical_kind == "random" or op.phase == "update" or i in writers | self.split:
                continue
            if op.kernel and any(self.root(tensor)[0] in changing for tensor in self.reads[i]):
                continue
            if self.sources[i] <= from_weights | constants and any(s in from_weights for s, _ in self.reads[i]):
                found.add(i)
        return found

    def is_shared(self, i: int, shared: tuple[str, ...]) -> bool:
        op = self.ops[i]
        scalars = all(output.shape == () for output in op.outputs)
        return not self.sources[i] and op.canonical_kind == "input" and (scalars or op.name in shared)

    def running_state(self, once: set[int]) -> set[int]:
        """The ops of the phase update that no gradient reaches and that feed no update; `once` run once without them."""
        update = {i for i in self.all if self.ops[i].phase == "update"} - self.variables
        found: set[int] = set()
        for i in reversed(self.order):
            if i not in update:
                continue
            met = self.met(i, update) - once
            fed = {j for j in update if any(s == i for s, _ in self.reads[j])}
            gradient = any(self.ops[j].phase in BACKWARD for j in met)
            if not gradient and not self.ops[i].persistent_bytes and fed <= found and (met or fed):
                found.add(i)
        return found

    def met(self, i: int, update: set[int]) -> set[int]:
        """The ops of other phases that an op of the phase update reads, directly or through others of that phase."""
        met: set[int] = set()
        for s, _ in self.reads[i]:
            met |= self.met(s, update) if s in update else {s}
        return met

    def behind(self, updates: set[int]) -> set[int]:
        """The ops that read what an update computed."""
        found: set[int] = set()
        for i in self.order:
            if any(s in updates or s in found for s, _ in self.reads[i]):
                found.add(i)
        return found

    # what joins repeated ops and those that run once

    def find_rows(self) -> None:
        for j in self.order:
            if j not in self.once:
                continue
            first = [self.output(t).shape for t in self.reads[j] if t in self.grown]
            first += [self.output((s, k)).shape for s, k in self.reads[j] if s not in self.once and is_rows(self.output((s, k)))]
            if not first:
                continue
            self.by_rows.add(j)
            sizes = {shape[0] for shape in first if shape}
            for k, output in enumerate(self.ops[j].outputs):
                if output.shape and output.shape[0] in sizes and self.root((j, k))[0] not in self.variables:
                    self.grown.add((j, k))

    def is_loss(self, tensor: Tensor) -> bool:
        op, output = self.ops[tensor[0]], self.output(tensor)
        trains = any(other.phase == "update" for other in self.ops)
        return trains and output.is_result and output.bytes <= SMALL and tensor[0] not in self.once and op.phase == "forward"

    def in_place(self, tensor: Tensor) -> bool:
        """Whether a sum may take the buffer of the first copy."""
        root = self.root(tensor)
        shares = [other for other in self.outputs if self.root(other) == root and other[0] not in self.once]
        if root[0] in self.once or any(self.output(other).is_result for other in shares):
            return False
        for j in self.all:
            read = [other for other in self.reads[j] if other in shares]
            view = j not in self.once and all((j, k) in shares for k in range(len(self.ops[j].outputs))) and self.ops[j].outputs
            if read and not view and not (j in self.once - self.by_rows and read == [tensor]):
                return False
        return True


def is_rows(output: Output) -> bool:
    return (output.bytes > SMALL or bool(output.shape)) and (output.dtype or "").startswith(("int", "uint", "bool"))


def elements(output: Output) -> int:
    return output.bytes // 4 if output.shape is None else prod(output.shape)
