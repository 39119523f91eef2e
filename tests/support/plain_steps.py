"""Steps of micro-batches and replicas in the plain implementation: docs/execution-model.md#micro-batches.

Ops of the step are keys, and each rule is asked of every key. All rules ask each other, so they stand in one file.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import pairwise

from support.plain_families import HOME, Families, Family
from support.plain_repetition import BACKWARD, Parts, Tensor, elements

from gnnplace.graph import CONTROL, NONE, Op, Output

MIB = 2**20
ACROSS = "across/"  # before what goes round a ring across rings
RING = ("flat", "chunks", "reduce", "gather", "reduced")
Key = tuple[str, int, int, int, int]  # what, of which op or bucket, output or hop, micro-batch, replica
Edge = tuple[int, int, int]


class Step:
    """The ops of a step in order, as keys."""

    def __init__(self, parts: Parts, copies: str, families: Families, ring_size: int) -> None:
        self.parts, self.copies, self.families, self.ring_size = parts, copies, families, ring_size
        self.number, self.replicas = sum(families.shares), len(families.shares)
        self.home = {i for i in parts.once if families.of[i] == HOME}
        self.named = {i for i in parts.all if families.layer[i] == HOME}
        self.rows_of = {t: families.first([families.of[j] for j in self.row_readers(t)]) for t in parts.concatenated}
        self.sums_of = {t: families.first([families.of[j] for j in self.adders(t)]) for t in parts.summed}
        self.ringed = {tensor for tensor in parts.summed if len(self.adding(tensor)) > 1}
        self.buckets = self.filled()
        self.keys = self.in_order()
        self.at = {key: n for n, key in enumerate(self.keys)}

    def in_order(self) -> list[Key]:
        parts, last = self.parts, range(self.number)
        keys: list[Key] = []
        for i in parts.all:
            once = [("op", i, 0, NONE, r) for r in self.families.having(self.families.of[i])]
            keys += once if i in parts.once else [("op", i, 0, m, self.replica(i, m)) for m in last]
        for i, k in sorted(parts.losses):
            keys += [("mean", i, k, m, self.replica(i, m)) for m in last]
        for i, k in parts.outputs:
            if (i, k) in parts.concatenated:
                keys += [("concat", i, k, NONE, r) for r in self.families.having(self.rows_of[i, k])]
            if (i, k) in parts.summed - self.ringed:
                keys += [("sum", i, k, m, self.adding((i, k))[0]) for m in last[1:]]
        for i, k in self.ready():
            keys += [("sum", i, k, m, r) for r in self.adding((i, k)) for m in self.added_up((i, k), r)[1:]]
        for b in range(len(self.buckets)):
            rings = self.rings(b)
            for r in (have := self.adding(self.buckets[b][0])):
                keys += [("flat", b, 0, NONE, r)] if self.is_flat(b, r) else []
                keys.append(("chunks", b, 0, NONE, r))
            hops = range(len(rings[0]) - 1)
            keys += [("reduce", b, h, NONE, r) for h in hops for r in have]
            for across in zip(*rings, strict=True) if len(rings) > 1 else []:
                keys += [(f"{ACROSS}chunks", b, 0, NONE, r) for r in across]
                keys += [(f"{ACROSS}{what}", b, h, NONE, r) for what in ("reduce", "gather") for h in range(len(rings) - 1) for r in across]
                keys += [(f"{ACROSS}reduced", b, 0, NONE, r) for r in across]
            keys += [("gather", b, h, NONE, r) for h in hops for r in have]
            keys += [("reduced", b, 0, NONE, r) for r in have]
        return keys

    def replica(self, i: int, m: int) -> int:
        return self.families.replica(self.families.of[i], m)

    def source(self, key: Key) -> int:
        """The op beside which an op of the step stands."""
        return self.buckets[key[1]][0][0] if key[0].removeprefix(ACROSS) in RING else key[1]

    def adders(self, tensor: Tensor) -> set[int]:
        """The ops that read the sum of a tensor."""
        return {j for j in self.parts.once - self.parts.by_rows if tensor in self.parts.reads[j]}

    def row_readers(self, tensor: Tensor) -> set[int]:
        return {j for j in self.parts.by_rows if tensor in self.parts.reads[j]}

    # families

    def adding(self, tensor: Tensor) -> list[int]:
        """The replicas that sum a tensor."""
        return self.families.having(self.sums_of[tensor])

    def added_up(self, tensor: Tensor, r: int) -> list[int]:
        """The micro-batches that a replica sums."""
        return self.families.micro_batches(self.sums_of[tensor], r)

    def rings(self, b: int) -> list[list[int]]:
        """The replicas of each ring of a bucket: one ring for each node, where these have equally many."""
        have, size = self.adding(self.buckets[b][0]), self.ring_size or self.replicas
        nodes = [[r for r in have if r // size == node] for node in sorted({r // size for r in have})]
        return nodes if len({len(node) for node in nodes}) == 1 and len(nodes[0]) > 1 else [have]

    def ring(self, b: int, r: int, way: str) -> list[int]:
        """The ring of a replica, or the one across rings: those with its place."""
        own = next(ring for ring in self.rings(b) if r in ring)
        return [ring[own.index(r)] for ring in self.rings(b)] if way == ACROSS else own

    # copies

    def copy(self, i: int, m: int, r: int) -> int:
        """The copy of an op that an op for a micro-batch or, if it runs once, on a replica has to do with."""
        if i not in self.parts.once:
            return self.at["op", i, 0, m, self.replica(i, m)]
        return self.at["op", i, 0, NONE, self.families.on(self.families.of[i], r)]

    def read(self, tensor: Tensor, j: int, m: int, r: int) -> list[Tensor]:
        """The outputs that a copy of op j reads of an output."""
        (i, k), parts = tensor, self.parts
        if i in parts.once:
            return [(self.copy(i, m, r), k)]
        if j not in parts.once:
            mean = tensor in parts.losses and parts.ops[j].phase in BACKWARD
            return [(self.at["mean", i, k, m, self.replica(i, m)], 0) if mean else (self.copy(i, m, r), k)]
        if not parts.is_joined(tensor, j):
            return [(self.copy(i, other, r), k) for other in range(self.number)]
        if j in parts.by_rows:
            return [(self.at["concat", i, k, NONE, self.families.on(self.rows_of[tensor], r)], 0)]
        adding = self.families.on(self.sums_of[tensor], r)
        if tensor in self.ringed:
            b = next(b for b, bucket in enumerate(self.buckets) if tensor in bucket)
            return [(self.at["reduced", b, 0, NONE, adding], self.buckets[b].index(tensor))]
        return [(self.at["sum", i, k, self.number - 1, adding], 0)]

    def edges(self) -> list[Edge]:
        parts, made = self.parts, []
        for n, (what, d, _, m, r) in enumerate(self.keys):
            if what != "op":
                made += [(*tensor, n) for tensor in self.inputs(self.keys[n])]
                continue
            for s, k in [(s, k) for s, k, j in parts.edges if j == d]:
                if k != CONTROL:
                    made += [(*read, n) for read in self.read((s, k), d, m, r)]
                elif d in self.home:
                    made += [(o, CONTROL, n) for o, (kind, i, *_) in enumerate(self.keys) if (kind, i) == ("op", s)]
                elif d in parts.once and s not in parts.once:
                    made += [(self.copy(s, other, r), CONTROL, n) for other in self.families.micro_batches(self.families.of[d], r)]
                else:
                    made.append((self.copy(s, m, r), CONTROL, n))
        return made + self.running()

    def running(self) -> list[Edge]:
        """Micro-batches that update running state in order."""
        parts, made = self.parts, []
        for i, v in parts.writers:
            shows = parts.shows(v)
            family = self.families.of[v]
            turns = [self.families.micro_batches(family, r) for r in self.families.having(family)]
            follow = [pair for turn in turns for pair in pairwise(turn)]
            for j in parts.all:
                seen = {s for s, k in parts.reads[j] if parts.root((s, k))[0] == v}
                if {i, j} & parts.once == set() and seen:
                    made += [(self.copy(i, m, 0), CONTROL, self.copy(j, n, 0)) for m, n in follow]
                    if seen & shows:
                        made += [(self.copy(j, m, 0), CONTROL, self.copy(i, n, 0)) for m, n in follow]
        return made

    # what an added op reads

    def inputs(self, key: Key) -> list[Tensor]:
        what, b, k, m, r = key
        if what == "mean":
            return [(self.copy(b, m, r), k)]
        if what == "concat":
            return [(self.copy(b, other, r), k) for other in range(self.number)]
        if what == "sum":
            return [self.sum_before((b, k), m, r), (self.copy(b, m, r), k)]
        kind = what.removeprefix(ACROSS)
        return getattr(self, f"of_{kind}")(b, k, r, what.removesuffix(kind))

    def sum_before(self, tensor: Tensor, m: int, r: int) -> Tensor:
        """The sum of a replica's micro-batches before m."""
        turn = self.added_up(tensor, r)
        return self.sum_until(tensor, turn[turn.index(m) - 1], r)

    def sum_until(self, tensor: Tensor, m: int, r: int) -> Tensor:
        """The sum of a replica's micro-batches up to m."""
        first = self.added_up(tensor, r)[0]
        return (self.copy(tensor[0], m, r), tensor[1]) if m == first else (self.at["sum", *tensor, m, r], 0)

    # rings

    @cached_property
    def level(self) -> list[int]:
        """By op the number of edges on the longest path to it."""
        level = [0] * len(self.parts.ops)
        for i in self.parts.order:
            level[i] = max((level[s] + 1 for s in self.parts.sources[i]), default=0)
        return level

    def ready(self) -> list[Tensor]:
        """The gradients that rings sum, in the order in which they are ready."""
        return sorted(self.ringed, key=lambda tensor: (self.level[tensor[0]], tensor))

    def filled(self) -> list[list[Tensor]]:
        full: list[list[Tensor]] = []
        filling: list[tuple[tuple, list[Tensor]]] = []
        known: list[tuple] = []
        for tensor in self.ready():
            ring = self.adding(tensor)
            kind = (self.group_of_sum(tensor, ring[0]), self.parts.output(tensor).dtype, ring)
            if kind[0] is None:
                full.append([tensor])
                continue
            bucket = next((bucket for other, bucket in filling if other == kind), None)
            if bucket is None:
                filling.append((kind, bucket := []))
            bucket.append(tensor)
            if self.size(bucket) >= (25 if kind in known else 1) * MIB:
                full.append(bucket)
                filling.remove((kind, bucket))
                known.append(kind)
        return full + [bucket for _, bucket in filling]

    def size(self, bucket: list[Tensor]) -> int:
        return sum(self.parts.output(tensor).bytes for tensor in bucket)

    def is_flat(self, b: int, r: int) -> bool:
        bucket = self.buckets[b]
        return len(bucket) > 1 or (len(self.added_up(bucket[0], r)) == 1 and not self.parts.in_place(bucket[0]))

    def partial(self, tensor: Tensor, r: int) -> Tensor:
        return self.sum_until(tensor, self.added_up(tensor, r)[-1], r)

    def of_flat(self, b: int, _: int, r: int, way: str) -> list[Tensor]:
        return [self.partial(tensor, r) for tensor in self.buckets[b]]

    def of_chunks(self, b: int, _: int, r: int, way: str) -> list[Tensor]:
        if way == ACROSS:
            return [self.summed(b, r, "")]
        return [(self.at["flat", b, 0, NONE, r], 0)] if self.is_flat(b, r) else self.of_flat(b, 0, r, way)

    def before(self, b: int, r: int, way: str) -> int:
        """The replica that sends to r."""
        ring = self.ring(b, r, way)
        return ring[ring.index(r) - 1]

    def chunk(self, b: int, r: int, hop: int, way: str) -> int:
        """The chunk of the replica that sent in this hop."""
        ring = self.ring(b, r, way)
        return (ring.index(r) - hop) % len(ring)

    def summed(self, b: int, r: int, way: str) -> Tensor:
        """The chunk that a replica summed last."""
        return (self.at[f"{way}reduce", b, len(self.ring(b, r, way)) - 2, NONE, r], 0)

    def complete(self, b: int, r: int, way: str) -> Tensor:
        """The chunk that a replica has summed: in its ring, if this is one of several, once it is summed across them."""
        again = way != ACROSS and len(self.rings(b)) > 1
        return (self.at[f"{ACROSS}reduced", b, 0, NONE, r], 0) if again else self.summed(b, r, way)

    def of_reduce(self, b: int, h: int, r: int, way: str) -> list[Tensor]:
        """Its own chunk, which the output is an alias of, and that of the replica before."""
        c, before = self.chunk(b, r, h + 1, way), self.before(b, r, way)
        sent = (self.at[f"{way}chunks", b, 0, NONE, before], c) if h == 0 else (self.at[f"{way}reduce", b, h - 1, NONE, before], 0)
        return [(self.at[f"{way}chunks", b, 0, NONE, r], c), sent]

    def of_gather(self, b: int, h: int, r: int, way: str) -> list[Tensor]:
        before = self.before(b, r, way)
        return [self.complete(b, before, way) if h == 0 else (self.at[f"{way}gather", b, h - 1, NONE, before], 0)]

    def of_reduced(self, b: int, _: int, r: int, way: str) -> list[Tensor]:
        """The chunk that it summed last, and those that it received."""
        hops = range(len(self.ring(b, r, way)) - 1)
        return [self.complete(b, r, way), *((self.at[f"{way}gather", b, h, NONE, r], 0) for h in hops)]

    # records

    def ops(self) -> list[Op]:
        return [self.record(key) for key in self.keys]

    def record(self, key: Key) -> Op:
        what, i, k, m, r = key
        kind = what.removeprefix(ACROSS)
        return getattr(self, kind)(i, k, r, what.removesuffix(kind)) if kind in RING else getattr(self, kind)(i, k, m, r)

    def op(self, i: int, _: int, m: int, r: int) -> Op:
        op, parts = self.parts.ops[i], self.parts
        outputs = []
        for k, output in enumerate(op.outputs):
            named = None if output.alias_of is None else self.read(output.alias_of, i, m, r)[-1]
            output = replace(output, alias_of=named, is_result=output.is_result and (i, k) not in parts.losses)
            outputs.append(self.grown(output) if (i, k) in parts.grown else output)
        op = replace(op, outputs=tuple(outputs), colocation=self.group(i, m, r))
        if i in parts.by_rows:
            accessed = None if op.bytes_accessed is None else op.bytes_accessed * self.number
            times = {key: time * self.number for key, time in op.time_ns.items()}
            op = replace(op, flops=op.flops * self.number, bytes_accessed=accessed, time_ns=times,
                         workspace_bytes=op.workspace_bytes * self.number)  # fmt: skip
        if i in parts.once:
            return op if self.replicas == 1 or i in self.home else replace(op, name=f"{op.name}@r{r}")
        return replace(op, name=f"{op.name}@{m}")

    def group(self, i: int, m: int, r: int) -> str | None:
        op, repeated = self.parts.ops[i], i not in self.parts.once
        if i in self.home:
            return op.colocation
        free = repeated and (i in self.named or self.copies == "anchored")
        if self.copies in ("whole", "anchored") and op.allowed is None and not free:
            return self.whole(r)
        if repeated and self.copies in ("free", "fetched", "anchored"):
            return None if op.colocation is None else f"{op.colocation}@{m}"
        alone = f"{op.name}@" if repeated and self.copies == "together" else None
        return self.on(op.colocation or alone, r)

    def on(self, group: str | None, r: int) -> str | None:
        return group if group is None or self.replicas == 1 else f"{group}@r{r}"

    def whole(self, r: int) -> str:
        return f"@r{r}"

    def grown(self, output: Output) -> Output:
        shape = output.shape and (output.shape[0] * self.number, *output.shape[1:])
        return replace(output, bytes=output.bytes * self.number, shape=shape)

    def added(self, name: str, kind: str, i: int, k: int, **fields) -> Op:
        """An op of the step alone, which stands for output k of op i."""
        op = self.parts.ops[i]
        flops = 0 if kind == "concat" else elements(op.outputs[k])
        canonical = "concat" if kind == "concat" else "elementwise"
        if self.copies in ("whole", "anchored") and op.allowed is not None:
            fields["colocation"] = None
        return Op(name, kind, flops=flops, canonical_kind=canonical, phase=op.phase, layer=op.layer, block=op.block,
                  allowed=op.allowed, **fields)  # fmt: skip

    def mean(self, i: int, k: int, m: int, r: int) -> Op:
        output = replace(self.parts.ops[i].outputs[k], alias_of=None)
        group = self.whole(r) if self.copies == "whole" else None
        return self.added(f"{self.name(i, k, 'mean')}@{m}", "sum", i, k, outputs=(output,), colocation=group)

    def concat(self, i: int, k: int, _: int, r: int) -> Op:
        output = self.grown(replace(self.parts.ops[i].outputs[k], alias_of=None, is_result=False))
        family, group = self.rows_of[i, k], None
        if self.copies in ("whole", "anchored"):
            group = self.with_update(self.row_readers((i, k)), family, r) if family == HOME else self.whole(r)
        name = self.name(i, k, "concat") if family == HOME else self.on(self.name(i, k, "concat"), r)
        return self.added(name, "concat", i, k, outputs=(output,), colocation=group)

    def sum(self, i: int, k: int, m: int, r: int) -> Op:
        before = self.sum_before((i, k), m, r)
        named = before if self.keys[before[0]][0] == "sum" or self.parts.in_place((i, k)) else None
        output = replace(self.parts.ops[i].outputs[k], alias_of=named, is_result=False)
        group = self.group_of_sum((i, k), r)
        return self.added(f"{self.name(i, k, 'sum')}@{m}", "sum", i, k, outputs=(output,), colocation=group)

    def name(self, i: int, k: int, what: str) -> str:
        return f"{self.parts.ops[i].name}/{what}{k or ''}"

    def group_of_sum(self, tensor: Tensor, r: int) -> str | None:
        family = self.sums_of[tensor]
        return (
            self.whole(r) if self.copies in ("whole", "anchored") and family != HOME else self.with_update(self.adders(tensor), family, r)
        )

    def with_update(self, readers: set[int], family: Family, r: int) -> str | None:
        """The group of the first update of a family among these ops that has one."""
        ops = self.parts.ops
        ours = [j for j in sorted(readers) if self.families.of[j] == family]
        found = [ops[j].colocation for j in ours if ops[j].phase == "update" and ops[j].colocation is not None]
        return None if not found else found[0] if family == HOME else self.on(found[0], r)

    def hop(self, what: str, b: int, r: int, kind: str, canonical: str, outputs: list[Output], flops: int = 0) -> Op:
        return Op(f"bucket{b}/{what}@r{r}", kind, tuple(outputs), flops=flops, kernel=kind != "view", canonical_kind=canonical,
                  colocation=self.group_of_sum(self.buckets[b][0], r), phase="backward_weight")  # fmt: skip

    def sizes(self, b: int, r: int, way: str) -> list[int]:
        """The bytes of the chunks: of the bucket, or of the chunk that a replica summed in its ring."""
        size, number = self.size(self.buckets[b]), len(self.ring(b, r, way))
        if way == ACROSS:
            size = self.sizes(b, r, "")[self.chunk(b, r, -1, "")]
        return [size // number + (1 if c < size % number else 0) for c in range(number)]

    def part(self, b: int, size: int, named: Tensor | None = None) -> Output:
        """So many bytes of a bucket."""
        return Output(size, None, self.parts.output(self.buckets[b][0]).dtype, named)

    def flat(self, b: int, _: int, r: int, way: str) -> Op:
        return self.hop("flat", b, r, "concat", "concat", [self.part(b, self.size(self.buckets[b]))])

    def chunks(self, b: int, _: int, r: int, way: str) -> Op:
        (whole,) = self.of_chunks(b, 0, r, way)
        return self.hop(f"{way}chunks", b, r, "view", "reshape", [self.part(b, size, whole) for size in self.sizes(b, r, way)])

    def reduce(self, b: int, h: int, r: int, way: str) -> Op:
        output = self.part(b, self.sizes(b, r, way)[self.chunk(b, r, h + 1, way)], self.of_reduce(b, h, r, way)[0])
        return self.hop(f"{way}reduce{h}", b, r, "sum", "elementwise", [output], output.bytes // 4)

    def gather(self, b: int, h: int, r: int, way: str) -> Op:
        output = self.part(b, self.sizes(b, r, way)[self.chunk(b, r, h, way)], self.of_gather(b, h, r, way)[0])
        return self.hop(f"{way}gather{h}", b, r, "view", "reshape", [output])

    def reduced(self, b: int, _: int, r: int, way: str) -> Op:
        named = self.of_reduced(b, 0, r, way)[0]
        outputs = [replace(self.parts.output(tensor), alias_of=named, is_result=False) for tensor in self.buckets[b]]
        if way == ACROSS:
            outputs = [self.part(b, sum(self.sizes(b, r, way)), named)]
        return self.hop(f"{way}reduced", b, r, "view", "reshape", outputs)
