"""Layered random graphs on small clusters, as the literature on list scheduling draws them.

Layer by layer (Tobita and Kasahara, 2002) with the parameters of Topcuoglu, Hariri and Wu (2002), which Daoud and Kharma (2008) use too:

- **shape** a: `round(sqrt(ops) / a)` layers, an op in each and the others anywhere, evenly;
- **edges**: an op beyond the first layer has one input from the layer before, and takes from every other op of any earlier layer with a
  chance that makes two inputs on average, where there are so many; its output is one tensor, the same for all who take it;
- **work** w of an op: even in 20 ... 100 ns; on unequal devices it lasts w * u there, u even in 0.5 ... 1.5 for each op and device;
- **ratio** of communication to computation: tensors have even sizes with a mean of ratio x 60 bytes, and a link carries a byte in a ns.
  All links out of a device share its copy engine, without overhead and latency;
- **memory**: ample; or persistent bytes of 50 ... 150 for each op, and devices that together hold 1.5 times all of them and all
  tensors.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from gnnplace.cluster import Cluster, Device, Link
from gnnplace.costs.roofline import problem
from gnnplace.graph import ComputationGraph, Op, Output
from gnnplace.problems import Problem

OPS, DEVICES, RATIOS = (20, 30, 40), (2, 3, 4), (0.2, 1.0, 5.0)
SHAPES = (0.5, 1.0, 2.0)
AMPLE, ROOM = 10**9, 1.5
INPUTS = 2.0


class Kind(NamedTuple):
    """What is drawn: a cell of the experiment."""

    ops: int
    devices: int
    ratio: float
    unequal: bool
    tight: bool
    shape: float

    @property
    def name(self) -> str:
        machine = ("unequal" if self.unequal else "equal") + (", tight" if self.tight else "")
        return f"{self.ops} ops, {self.devices} devices, ratio {self.ratio:g}, {machine}, shape {self.shape:g}"


def kinds() -> list[Kind]:
    """All cells: every size, devices and ratio on equal devices, on unequal ones, and where no memory holds all; shapes in turns."""
    cells = list(product(OPS, DEVICES, RATIOS))
    found = []
    for number, (ops, devices, ratio) in enumerate(cells):
        for machine in range(3):
            unequal = machine == 1 or (machine == 2 and number % 2 == 1)
            found.append(Kind(ops, devices, ratio, unequal, machine == 2, SHAPES[(number + number // 3 + machine) % 3]))
    return found


def drawn(kind: Kind, seed: int) -> Problem:
    """The problem of a kind and a seed."""
    generator = np.random.default_rng([seed, kind.ops, kind.devices, int(10 * kind.ratio), kind.unequal, kind.tight, int(10 * kind.shape)])
    work = generator.integers(20, 101, kind.ops)
    spread = 0.5 + generator.random((kind.ops, kind.devices)) if kind.unequal else np.ones((kind.ops, kind.devices))
    times = np.maximum(1, np.rint(work[:, None] * spread)).astype(np.int64)
    size = generator.integers(0, int(2 * 60 * kind.ratio) + 1, kind.ops)
    held = generator.integers(50, 151, kind.ops) if kind.tight else np.zeros(kind.ops, dtype=np.int64)
    memory = int(ROOM * (held.sum() + size.sum()) / kind.devices) if kind.tight else AMPLE
    ops = [
        Op(f"op{i}", "Op", (Output(int(size[i])),), persistent_bytes=int(held[i]), time_ns={f"gpu:{d}": int(t) for d, t in enumerate(row)})
        for i, row in enumerate(times)
    ]
    edges = [(int(src), 0, int(dst)) for src, dst in _edges(_layers(kind, generator), generator)]
    return problem(ComputationGraph.from_ops(f"{kind.name}, seed {seed}", ops, edges), _cluster(kind.devices, memory))


def _layers(kind: Kind, generator: np.random.Generator) -> Int64[np.ndarray, " ops"]:
    """The layer of each op, in order."""
    height = max(1, round(float(np.sqrt(kind.ops)) / kind.shape))
    return np.sort(np.concatenate([np.arange(height), generator.integers(0, height, kind.ops - height)])).astype(np.int64)


def _edges(layer: Int64[np.ndarray, " ops"], generator: np.random.Generator) -> list[tuple[int, int]]:
    found = []
    for op in np.flatnonzero(layer > 0).tolist():
        before = np.flatnonzero(layer < layer[op])
        first = int(generator.choice(np.flatnonzero(layer == layer[op] - 1)))
        others = before[before != first]
        taken = others[generator.random(len(others)) < (INPUTS - 1) / max(1, len(others))]
        found += [(source, op) for source in sorted([first, *taken.tolist()])]
    return found


def _cluster(count: int, memory_bytes: int) -> Cluster:
    devices = tuple(Device(f"gpu:{d}", "gpu", memory_bytes, 10**12, 10**12) for d in range(count))
    links = tuple(Link(a.name, b.name, 10**9) for a in devices for b in devices if a is not b)
    return Cluster(f"gpus-{count}", devices, links)
