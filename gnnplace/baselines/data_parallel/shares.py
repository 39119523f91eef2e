"""Which accelerators work on how many of the micro-batches of a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from gnnplace.baselines.rings import ring, size_of_nodes
from gnnplace.graph import NONE
from gnnplace.problems import Problem


class Shares(NamedTuple):
    """`devices` in the order of a ring over fast links, and the micro-batches of each. Those of a node are a ring."""

    devices: Int64[np.ndarray, " replicas"]
    number: Int64[np.ndarray, " replicas"]
    ring_size: int = 0


def shares(problem: Problem) -> Iterator[Shares]:
    """Shares by speed, on all accelerators, on the fastest half, and so on to a single one. Each is given once.

    A micro-batch goes to the device that would end it first. A device that gets none is left out.
    """
    copies, accelerators = problem.graph.copies, problem.cluster.accelerators
    micro_batches = 1 if copies is None else copies.micro_batches
    repeated = np.ones(problem.num_ops, dtype=bool) if copies is None else copies.micro_batch != NONE
    ns = problem.time_ns[repeated][:, accelerators].sum(axis=0) / micro_batches
    fastest = np.argsort(ns, kind="stable")
    seen = set[bytes]()
    for count in _halves(len(fastest)):
        number = np.zeros(len(accelerators), dtype=np.int64)
        some = np.sort(fastest[:count])
        for _ in range(micro_batches):
            number[some[np.argmin((number[some] + 1) * ns[some])]] += 1
        if number.tobytes() not in seen:
            seen.add(number.tobytes())
            place = ring(problem.cluster, accelerators[number > 0])
            yield Shares(place, number[np.searchsorted(accelerators, place)], size_of_nodes(problem.cluster, place))


def _halves(count: int) -> Iterator[int]:
    while count:
        yield count
        count //= 2
