"""Sums of gradients over replicas: rings of chunks for each bucket.

Reduce-scatter: in each of R - 1 hops a replica sends a chunk to the next one, which adds it to its own. All-gather: the
sums go round in R - 1 more hops (Patarasuk and Yuan, Journal of Parallel and Distributed Computing, 2009). With several
rings, one for each node, a chunk that a ring has summed is summed across rings, too, before it goes round: links
between nodes carry 2 (N - 1) / N of the bytes for N nodes, not for R replicas (Thakur, Rabenseifner and Gropp,
International Journal of High Performance Computing Applications, 2005; Cho et al., BlueConnect, MLSys 2019). Buckets as
in DistributedDataParallel (Li et al., VLDB 2020, section 3.2.3): gradients in the order in which they are ready, the
first bucket small.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gnnplace.graph import NONE, Op, Output
from gnnplace.transformations.assembly import Assembly

FIRST_BUCKET_BYTES, BUCKET_BYTES = 2**20, 25 * 2**20
CANONICAL = {"sum": "elementwise", "concat": "concat", "view": "reshape"}
Place = tuple[int, int]  # an op and an output of it


class Total(NamedTuple):
    """A gradient summed over the micro-batches of each replica.

    `source` is the op of the micro-batch that computes it, `at[r]` the (op, output) of replica r, whose buffer the
    ring may take if it `is_spare[r]`, `group[r]` the colocation group in which the update of replica r stands, None if
    it has none. Only replicas that have the gradient's family have these, in order.
    """

    source: int
    output: int
    like: Output
    at: Mapping[int, Place]
    is_spare: Mapping[int, bool]
    group: Mapping[int, str | None]


Add = Callable[[Op, int, int, int], int]  # an op, its source, its replica and the output whose buffer it shares


def buckets(totals: Sequence[Total]) -> Iterator[list[Total]]:
    """The totals in buckets. Those of a bucket are on the same replicas, colocated on each, and have a type.

    A bucket is full with 25 MiB; the first of such totals with 1 MiB.
    """
    open_buckets: dict[tuple[str | None, str | None, tuple[int, ...]], list[Total]] = {}
    limit: dict[tuple[str | None, str | None, tuple[int, ...]], int] = {}
    for total in totals:
        key = (next(iter(total.group.values())), total.like.dtype, tuple(total.at))
        bucket = open_buckets.setdefault(key, [])
        bucket.append(total)
        if key[0] is None or sum(each.like.bytes for each in bucket) >= limit.get(key, FIRST_BUCKET_BYTES):
            limit[key] = BUCKET_BYTES
            yield open_buckets.pop(key)
    yield from open_buckets.values()


def in_rings(replicas: Sequence[int], ring_size: int) -> list[list[int]]:
    """The replicas of each ring: those in the same run of `ring_size` replicas.

    All are in one ring where runs differ in how many they have, or have one each.

        >>> in_rings(range(4), 2), in_rings([1, 3], 2), in_rings([0, 1, 2], 2), in_rings(range(4), 0)
        ([[0, 1], [2, 3]], [[1, 3]], [[0, 1, 2]], [[0, 1, 2, 3]])
    """
    of_run = defaultdict[int, list[int]](list)
    for replica in replicas:
        of_run[replica // ring_size if ring_size else 0].append(replica)
    runs = list(of_run.values())
    alike = len({len(run) for run in runs}) == 1 and len(runs[0]) > 1
    return runs if alike else [list(replicas)]


def ops_of_rings(replicas: Sequence[int], ring_size: int) -> int:
    """How many ops the rings of a bucket have at most."""
    rings = in_rings(replicas, ring_size)
    across = 2 * len(rings) if len(rings) > 1 else 0
    return len(replicas) * (2 * len(rings[0]) + 1 + across)


def all_reduced(name: str, bucket: Sequence[Total], assembly: Assembly, add: Add, ring_size: int = 0) -> dict[int, int]:
    """Adds the rings of a bucket. Gives by replica the op whose output k is the sum of gradient k of the bucket."""
    ops = _RingOps(bucket, assembly, add)
    rings = [_Ring(name, replicas, ops) for replicas in in_rings(list(bucket[0].at), ring_size)]
    for ring in rings:
        for replica in ring.replicas:
            ring.cut(ops.flat(name, replica), ops.bytes)
    _reduce_scatter(rings)
    if len(rings) > 1:
        for place in range(len(rings[0].replicas)):
            _across(rings, place, ops)
    summed = [(replica, ring.summed(place)) for ring in rings for place, replica in enumerate(ring.replicas)]
    _all_gather(rings)
    likes = [total.like for total in bucket]
    held = [each for ring in rings for each in ring.held]
    return {
        replica: ops.op(f"{name}/reduced", replica, "view", likes, chunks, alias)
        for (replica, alias), chunks in zip(summed, held, strict=True)
    }


def _reduce_scatter(rings: Sequence[_Ring]) -> None:
    """In each hop a replica adds a chunk of the replica before to its own. The last one is summed."""
    for hop in range(len(rings[0].replicas) - 1):
        for ring in rings:
            ring.reduce(hop)


def _all_gather(rings: Sequence[_Ring]) -> None:
    """In each hop a replica receives a summed chunk of the replica before."""
    for hop in range(len(rings[0].replicas) - 1):
        for ring in rings:
            ring.gather(hop)


def _across(rings: Sequence[_Ring], place: int, ops: _RingOps) -> None:
    """Sums over rings the chunk that the replicas in a place of theirs have summed."""
    across = _Ring(f"{rings[0].name}/across", [ring.replicas[place] for ring in rings], ops)
    chunk = rings[0].chunk_of(place)
    for ring in rings:
        across.cut(ring.held[place][chunk], ring.chunk_bytes[chunk])
    _reduce_scatter([across])
    summed = [across.summed(each) for each in range(len(rings))]
    _all_gather([across])
    for number, ring in enumerate(rings):
        like, chunks = ops.like(ring.chunk_bytes[chunk]), across.held[number]
        joined = ops.op(f"{across.name}/reduced", ring.replicas[place], "view", [like], chunks, summed[number])
        ring.held[place][chunk] = joined, 0


class _RingOps:
    """Adds the ops of a bucket's rings."""

    def __init__(self, bucket: Sequence[Total], assembly: Assembly, add: Add) -> None:
        self._bucket, self._assembly, self._add = bucket, assembly, add
        self.bytes = sum(total.like.bytes for total in bucket)

    def flat(self, name: str, replica: int) -> Place:
        """All gradients of a replica in one buffer, which is that of the only one if the ring may take it."""
        first = self._bucket[0]
        if len(self._bucket) == 1 and first.is_spare[replica]:
            return first.at[replica]
        gradients = [total.at[replica] for total in self._bucket]
        return self.op(f"{name}/flat", replica, "concat", [self.like(self.bytes)], gradients), 0

    def like(self, size: int) -> Output:
        """A chunk of so many bytes."""
        return Output(size, None, self._bucket[0].like.dtype)

    def op(
        self,
        name: str,
        replica: int,
        kind: str,
        outputs: Sequence[Output],
        reads: Sequence[Place],
        alias: Place | None = None,
        flops: int = 0,
    ) -> int:
        """The number of an op that is added; its outputs share the buffer of `alias`."""
        op = Op(
            f"{name}@r{replica}", kind, tuple(outputs), flops=flops, kernel=kind != "view",
            colocation=self._bucket[0].group[replica], phase="backward_weight", canonical_kind=CANONICAL[kind],
        )  # fmt: skip
        buffer = NONE if alias is None else self._assembly.first_output(alias[0]) + alias[1]
        added = self._add(op, self._bucket[0].source, replica, buffer)
        self._assembly.connect([at[0] for at in reads], [at[1] for at in reads], [added] * len(reads))
        return added


class _Ring:
    """Replicas that sum a buffer. `held[i][c]` is what its i-th replica has of chunk c, as far as summed."""

    def __init__(self, name: str, replicas: Sequence[int], ops: _RingOps) -> None:
        self.name, self.replicas, self._ops = name, replicas, ops
        self.held, self.chunk_bytes = list[list[Place]](), list[int]()

    def cut(self, buffer: Place, size: int) -> None:
        """Cuts the buffer of the next replica into chunks, views of it."""
        count = len(self.replicas)
        chunk, larger = divmod(size, count)
        self.chunk_bytes = [chunk + (number < larger) for number in range(count)]
        likes = [self._ops.like(each) for each in self.chunk_bytes]
        chunks = self._ops.op(f"{self.name}/chunks", self.replicas[len(self.held)], "view", likes, [buffer], buffer)
        self.held.append([(chunks, chunk) for chunk in range(count)])

    def reduce(self, hop: int) -> None:
        """Each replica adds a chunk of the one before to its own, in place."""
        for place, (replica, held) in enumerate(zip(self.replicas, self.held, strict=True)):
            chunk = (place - hop - 1) % len(self.replicas)
            sent, mine, size = self.held[place - 1][chunk], held[chunk], self.chunk_bytes[chunk]
            likes = [self._ops.like(size)]
            held[chunk] = (
                self._ops.op(f"{self.name}/reduce{hop}", replica, "sum", likes, [sent, mine], mine, size // 4),
                0,
            )

    def gather(self, hop: int) -> None:
        """Each replica receives a chunk of the one before."""
        for place, (replica, held) in enumerate(zip(self.replicas, self.held, strict=True)):
            chunk = (place - hop) % len(self.replicas)
            sent, like = self.held[place - 1][chunk], self._ops.like(self.chunk_bytes[chunk])
            held[chunk] = self._ops.op(f"{self.name}/gather{hop}", replica, "view", [like], [sent], sent), 0

    def chunk_of(self, place: int) -> int:
        """The chunk that a replica has summed when all are reduced."""
        return (place + 1) % len(self.replicas)

    def summed(self, place: int) -> Place:
        """That chunk."""
        return self.held[place][self.chunk_of(place)]
