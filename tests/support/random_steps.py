"""Random graphs of one micro-batch, and random placements of graphs.

Sizes and phases come from few values, so that sums, rows, losses, running state, derived ops and views of all of these meet.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from support.random_problems import Case, random_devices

from experiments.random_documents import random_cluster, receive_apart
from gnnplace.formats.graphs import graph_document
from gnnplace.graph import CONTROL, ComputationGraph, Op, Output
from gnnplace.placement import RULES

Tensor = tuple[int, int]
SHAPES: list[tuple[int, ...] | None] = [(), (2,), (4,), (4, 3), (2, 2), (3,), None]
DTYPES = ["float32", "float32", "float16", "int32", "int64", "bool", None]
FORWARD, BACKWARD, OTHER = ["forward"] * 6, ["backward_data"] * 3 + ["backward_weight"] * 3, ["other", None]
PASSES = {"training": FORWARD + BACKWARD, "inference": FORWARD, "any": [*FORWARD, "update", *BACKWARD]}
BUCKETS = [2**19 + 3, 13 * 2**20]  # bytes, of which two fill a first or a later bucket
VALUE = Output(12, (3,), "float32")


def random_step(seed: int) -> ComputationGraph:
    """The graph of a seed: 5-45 ops, for training, for inference, or with phases out of order. A few are refused."""
    random = Random(f"step {seed}")
    made = Ops(random)
    what = random.choice(["training"] * 7 + ["inference", "any"])
    made.variables()
    made.sources()
    made.passes(PASSES[what])
    if what != "inference":
        made.losses()
        made.updates()
        made.running_means()
        if made.rarely(0.25):
            made.behind()
    made.waits()
    return made.graph()


class Ops:
    """Ops as they are added, each after what it reads."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.ops: list[Op] = []
        self.edges: list[tuple[int, int, int]] = []
        self.weights: list[Tensor] = []  # variables, their reads and what is derived from them
        self.pool: list[Tensor] = []  # what passes read
        self.gradients: list[Tensor] = []

    def rarely(self, chance: float) -> bool:
        return self.random.random() < chance

    def some(self, tensors: list[Tensor], most: int = 1, chance: float = 1.0) -> list[Tensor]:
        """Up to so many of some outputs, or, but for this chance, none."""
        return self.random.choices(tensors, k=self.random.randint(1, most)) if tensors and self.rarely(chance) else []

    def record(self, tensor: Tensor) -> Output:
        return self.ops[tensor[0]].outputs[tensor[1]]

    def output(self, reads: list[Tensor], alias: float) -> Output:
        """An output, at this chance a view of one that is read."""
        if reads and self.rarely(alias):
            named = self.random.choice(reads)
            return replace(self.record(named), alias_of=named, is_result=False)
        size = self.random.choice(BUCKETS if self.rarely(0.06) else [0, 1, 4, 8, 9, 12, 40, 48])
        return Output(size, self.random.choice(SHAPES), self.random.choice(DTYPES), is_result=self.rarely(0.08))

    def add(self, reads: list[Tensor], outputs: list[Output], phase: str | None, **fields) -> list[Tensor]:
        """An op with random columns where none are given; its outputs."""
        choice, op = self.random.choice, len(self.ops)
        columns = {
            "flops": (0.3, lambda: choice([1, 7, 100])), "bytes_accessed": (0.2, lambda: choice([0, 5, 70])),
            "workspace_bytes": (0.2, lambda: choice([3, 20])), "colocation": (0.25, lambda: choice("ghk")),
            "allowed": (0.03, lambda: tuple(self.random.sample(["cpu", "gpu", "npu"], 2))),
            "time_ns": (0.15, lambda: {key: choice([0, 1, 3, 8]) for key in ("gpu", "cpu", "npu")}),
            "layer": (0.5, lambda: choice(["one", "one.a", "two/b"])), "block": (0.3, lambda: choice([0, 1])),
            "time_step": (0.2, lambda: choice([0, 1])),
        }  # fmt: skip
        fields = {name: value() for name, (chance, value) in columns.items() if name not in fields and self.rarely(chance)} | fields
        self.ops.append(Op(f"op{op}", fields.pop("kind", "Op"), tuple(outputs), phase=phase, **fields))
        self.edges += [(*tensor, op) for tensor in reads]
        return [(op, k) for k in range(len(outputs))]

    def variable(self, phase: str | None = "other", **fields) -> Tensor:
        """A source with state; rarely it computes."""
        times = {} if self.rarely(0.1) else {"flops": 0, "time_ns": {}}
        fields = {"persistent_bytes": 12, "kernel": False, "canonical_kind": "variable"} | times | fields
        return self.add([], [Output(self.random.choice([0, 12]), None, "float32")], phase, **fields)[0]

    def variables(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            variable = self.variable(self.random.choice([*OTHER, "forward", "update"]))
            self.weights.append(variable)
            for _ in range(self.random.randint(0, 2)):
                phase = self.random.choice(["other", "forward", "backward_data", "update" if self.rarely(0.2) else "other"])
                if self.rarely(0.5):
                    self.weights += self.add([variable], [replace(VALUE, alias_of=variable)], phase, kernel=False)
                else:
                    self.weights += self.add(self.some([variable, *self.weights], 2), [VALUE], phase)

    def sources(self) -> None:
        """Constants, sizes computed from them, inputs and noise."""
        constants: list[Tensor] = []
        for _ in range(self.random.randint(0, 3)):
            reads = self.some(constants, 1, 0.3)
            phase = self.random.choice([*OTHER, "forward", "update"])
            constants += self.add(reads, [self.output(reads, 0.2)], phase, flops=0, kernel=False)
        self.pool += constants
        for _ in range(self.random.randint(1, 3)):
            kind, phase = self.random.choice(["input", "input", "random"]), self.random.choice([*OTHER, "forward", "forward", "update"])
            outputs = [self.output([], 0) for _ in range(self.random.choice([1, 1, 2]))]
            self.pool += self.add([], outputs, phase, kernel=kind == "random", canonical_kind=kind)

    def passes(self, phases: list[str | None]) -> None:
        """Ops of these phases in order, mostly."""
        for phase in phases:
            for _ in range(self.random.randint(0, 2)):
                reads = self.some(self.random.choice([self.pool, self.pool[-6:]]), 3) + self.some(self.weights, 1, 0.4)
                outputs = [self.output(reads, 0.25) for _ in range(self.random.choice([0, 1, 1, 1, 2, 3]))]
                fields = {"persistent_bytes": self.random.choice([4, 30])} if self.rarely(0.04) else {}
                kind = self.random.choice(["random", "matmul", "variable", "input"]) if self.rarely(0.1) else None
                of_phase = self.random.choice(OTHER) if self.rarely(0.1) else phase
                made = self.add(reads, outputs, of_phase, kernel=self.rarely(0.7), canonical_kind=kind, **fields)
                self.pool += made if phase != "update" or self.rarely(0.3) else []
                self.gradients += made if phase in BACKWARD else []

    def losses(self) -> None:
        """Small results of the forward pass that the backward pass reads, some of them as a view."""
        for _ in range(self.random.randint(0, 2)):
            losses = [Output(self.random.choice([4, 8, 12]), self.random.choice([(), (2,), None]), "float32", is_result=True)]
            made = self.add(self.some(self.pool, 3), losses * self.random.choice([1, 1, 2]), "forward")
            self.pool += made
            for _ in range(self.random.randint(0, 2)):
                reads = [*made, *self.some(self.pool)]
                self.gradients += self.add(reads, [self.output(reads, 0.5)], self.random.choice([*BACKWARD, "forward"]))
        self.pool += self.gradients[-2:]

    def updates(self) -> None:
        """Ops of the update phase: of dense and sparse gradients, norms, counters, updates that return the variable."""
        made = list(self.gradients)
        indices = [tensor for tensor in self.pool if (self.record(tensor).dtype or "").startswith("int")]
        for _ in range(self.random.randint(1, 6)):
            reads = self.some(made, 2, 0.9) + self.some(self.weights, 2, 0.8) + self.some(self.pool, 1, 0.2) + self.some(indices, 1, 0.2)
            outputs = [self.output(reads, 0.3) for _ in range(self.random.choice([0, 0, 1, 1, 2]))]
            fields = {"persistent_bytes": self.random.choice([4, 30])} if self.rarely(0.1) else {}
            made += self.add(reads, outputs, "update", kernel=self.rarely(0.8), **fields)

    def running_means(self) -> None:
        """Running state as TensorFlow has it (a read, a difference, an assignment) and as PyTorch has it (a kernel in place)."""
        for _ in range(self.random.randint(0, 1)):
            self.buffer()
        for _ in range(self.random.randint(0, 2)):
            mean = self.variable()
            (read,) = self.add([mean], [replace(VALUE, alias_of=mean)], self.random.choice(["update", "forward"]), kernel=False)
            if self.rarely(0.5):
                (difference,) = self.add([read, *self.some(self.pool)], [VALUE], "update")
                (scaled,) = self.add([difference, *self.some(self.pool, 1, 0.2)], [VALUE], "update")
                self.add([mean, scaled], [], "update")
            else:
                written = self.add([read, *self.some(self.pool)], [replace(VALUE, alias_of=read)], "forward", kernel=True)
                self.pool += self.some(written, 1, 0.3)

    def buffer(self) -> None:
        """A buffer with a kernel beside it, which writes it or, of another group, reads it."""
        buffer, group = self.variable(kind="buffer", colocation="g"), "gggh"
        (read,) = self.add([buffer], [replace(VALUE, alias_of=buffer)], self.random.choice(["other", "forward"]), kernel=False)
        for _ in range(self.random.randint(1, 2)):
            reads = [self.random.choice([read, buffer]), *self.some(self.pool)]
            fields = {"kernel": self.rarely(0.8), "colocation": self.random.choice(group)}
            self.pool += self.some(self.add(reads, [self.output(reads, 0.1)], self.random.choice(["forward", "backward_data"]), **fields))

    def behind(self) -> None:
        """Ops that read what an update computed."""
        computed = [(op, k) for op, made in enumerate(self.ops) if made.phase == "update" for k in range(len(made.outputs))]
        for _ in range(self.random.randint(1, 2)):
            reads = self.some(computed) + self.some(self.pool, 1, 0.3)
            self.pool += self.add(reads, [self.output(reads, 0.2)], self.random.choice([*OTHER, "update", "backward_data"]))

    def waits(self) -> None:
        """Control edges from earlier ops to later ones, mostly to updates."""
        sources = set(range(len(self.ops))) - {edge[2] for edge in self.edges}
        for op, made in enumerate(self.ops):
            earlier = [other for other in range(op) if made.phase == "update" or self.ops[other].phase != "update"]
            if earlier and op not in sources and self.rarely(0.3 if made.phase == "update" else 0.08):
                self.edges.append((self.random.choice(earlier), CONTROL, op))

    def graph(self) -> ComputationGraph:
        """The graph, whose document lists ops in another order, mostly."""
        order = list(range(len(self.ops)))
        if self.rarely(0.6):
            self.random.shuffle(order)
        at = {op: place for place, op in enumerate(order)}

        def moved(output: Output) -> Output:
            return output if output.alias_of is None else replace(output, alias_of=(at[output.alias_of[0]], output.alias_of[1]))

        ops = [replace(self.ops[op], outputs=tuple(map(moved, self.ops[op].outputs))) for op in order]
        return ComputationGraph.from_ops("random", ops, [(at[src], k, at[dst]) for src, k, dst in self.edges])


def placed(graph: ComputationGraph, seed: int) -> Case:
    """A graph on a random cluster, placed at random."""
    random = Random(f"placed {seed}")
    cluster, document = random_cluster(random), graph_document(graph)
    receive_apart(random, cluster)
    schedule = random.choice([*RULES, "given"])
    priority = [random.randint(-3, 3) for _ in document["ops"]] if schedule == "given" else None
    return Case(document, cluster, random_devices(random, document, len(cluster["devices"])), schedule, priority)
