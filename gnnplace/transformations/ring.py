"""Sums of gradients over replicas: a ring of chunks for each bucket.

Reduce-scatter: in each of R - 1 hops a replica sends a chunk to the next one, which adds it to its own. All-gather: the
sums go round in R - 1 more hops (Patarasuk and Yuan, Journal of Parallel and Distributed Computing, 2009). Buckets as
in DistributedDataParallel (Li et al., VLDB 2020, section 3.2.3): gradients in the order in which they are ready, the
first bucket small.
"""

from __future__ import annotations

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


def all_reduced(name: str, bucket: Sequence[Total], assembly: Assembly, add: Add) -> dict[int, int]:
    """Adds the ring of a bucket. Gives by replica the op whose output k is the sum of gradient k of the bucket."""
    ring = _Ring(name, bucket, assembly, add)
    ring.cut()
    ring.reduce_scatter()
    summed = ring.summed()
    ring.all_gather()
    return ring.reduced(summed)


class _Ring:
    """The ops of a ring. `held[i][c]` is the (op, output) of its i-th replica with chunk c, as far as summed."""

    def __init__(self, name: str, bucket: Sequence[Total], assembly: Assembly, add: Add) -> None:
        self._name, self._bucket, self._assembly, self._add = name, bucket, assembly, add
        self._replicas, self._count, self._dtype = list(bucket[0].at), len(bucket[0].at), bucket[0].like.dtype
        self._bytes, self._held = sum(total.like.bytes for total in bucket), list[list[Place]]()
        chunk, larger = divmod(self._bytes, self._count)
        self._chunk_bytes = [chunk + (number < larger) for number in range(self._count)]

    def cut(self) -> None:
        """Cuts the gradients of each replica into chunks, views of one buffer."""
        for replica in self._replicas:
            flat = self._flat(replica)
            chunks = self._op("chunks", replica, "view", [self._like(size) for size in self._chunk_bytes], [flat], flat)
            self._held.append([(chunks, chunk) for chunk in range(self._count)])

    def _flat(self, replica: int) -> Place:
        """All gradients of a replica in one buffer, which is that of the only one if the ring may take it."""
        first = self._bucket[0]
        if len(self._bucket) == 1 and first.is_spare[replica]:
            return first.at[replica]
        gradients = [total.at[replica] for total in self._bucket]
        return self._op("flat", replica, "concat", [self._like(self._bytes)], gradients), 0

    def reduce_scatter(self) -> None:
        """In each hop a replica adds a chunk of the replica before to its own. The last one is summed."""
        for hop in range(self._count - 1):
            for place, (replica, held) in enumerate(zip(self._replicas, self._held, strict=True)):
                chunk = (place - hop - 1) % self._count
                sent, mine, size = self._held[place - 1][chunk], held[chunk], self._chunk_bytes[chunk]
                held[chunk] = (
                    self._op(f"reduce{hop}", replica, "sum", [self._like(size)], [sent, mine], mine, size // 4),
                    0,
                )

    def summed(self) -> list[Place]:
        """The chunk that each replica summed last."""
        return [held[(place + 1) % self._count] for place, held in enumerate(self._held)]

    def all_gather(self) -> None:
        """In each hop a replica receives a summed chunk of the replica before."""
        for hop in range(self._count - 1):
            for place, (replica, held) in enumerate(zip(self._replicas, self._held, strict=True)):
                chunk = (place - hop) % self._count
                sent, like = self._held[place - 1][chunk], self._like(self._chunk_bytes[chunk])
                held[chunk] = self._op(f"gather{hop}", replica, "view", [like], [sent], sent), 0

    def reduced(self, summed: Sequence[Place]) -> dict[int, int]:
        """By replica the op that reads all chunks and shows the gradients."""
        likes, places = [total.like for total in self._bucket], zip(self._replicas, self._held, summed, strict=True)
        return {replica: self._op("reduced", replica, "view", likes, held, at) for replica, held, at in places}

    def _like(self, size: int) -> Output:
        return Output(size, None, self._dtype)

    def _op(
        self,
        step: str,
        replica: int,
        kind: str,
        outputs: Sequence[Output],
        reads: Sequence[Place],
        alias: Place | None = None,
        flops: int = 0,
    ) -> int:
        """The number of an op that is added; its outputs share the buffer of `alias`."""
        op = Op(
            f"{self._name}/{step}@r{replica}", kind, tuple(outputs), flops=flops, kernel=kind != "view",
            colocation=self._bucket[0].group[replica], phase="backward_weight", canonical_kind=CANONICAL[kind],
        )  # fmt: skip
        buffer = NONE if alias is None else self._assembly.first_output(alias[0]) + alias[1]
        added = self._add(op, self._bucket[0].source, replica, buffer)
        self._assembly.connect([at[0] for at in reads], [at[1] for at in reads], [added] * len(reads))
        return added
