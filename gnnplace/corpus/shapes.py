"""Shapes of synthetic graphs: seeded DAGs of an exact number of ops, whose edges lead from lower to higher op numbers.

Every op has an edge. All random choices come from the generator that the caller passes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from gnnplace.graph import NONE

MIN_OPS = 4


class Shape(NamedTuple):
    """Edges (source, destination) of a DAG and the position of each op in a repeated pattern.

    `block` is the repetition that an op is in (-1: none). `role` numbers the ops of the pattern: two ops of one role
    are copies of each other (-1: a copy of none).
    """

    edges: Int64[np.ndarray, "edges 2"]
    block: Int64[np.ndarray, " ops"]
    role: Int64[np.ndarray, " ops"]


def layered(
    num_ops: int, generator: np.random.Generator, *, width: int | None = None, density: float | int = 2
) -> Shape:
    """Layers of `width` / 2 to `width` ops; the last may have fewer. By default width and number of layers are similar.

    Each op has one input from the layer before it and others from any earlier layer, `density` inputs on average. Each
    op outside the last layer gives its output to a later layer.
    """
    width = round(1.15 * num_ops**0.5) if width is None else width
    _at_least("width", width, 1)
    _at_least("density", density, 1)
    return _single(num_ops, _layers(num_ops, generator, width, density))


def fork_join(
    num_ops: int, generator: np.random.Generator, *, width: int | None = None, blocks: int | None = None
) -> Shape:
    """`blocks` times an op forks into `width` (default 4) chains, which the next op joins.

    By default a chain has about ten ops. The lengths of chains are random, at least one op each; chains share no op.
    """
    width = min(4, num_ops - 2) if width is None else width
    _at_least("width", width, 1)
    blocks = max(1, num_ops // (10 * width)) if blocks is None else blocks
    _at_least("blocks", blocks, 1)
    chains = blocks * width
    _at_least("num_ops", num_ops, chains + blocks + 1, f", for {blocks} blocks of {width} chains")
    length = 1 + generator.multinomial(num_ops - blocks - 1 - chains, np.full(chains, 1 / chains))
    size = 1 + length.reshape(blocks, width).sum(axis=1)  # a fork and its chains
    fork = np.concatenate([[0], np.cumsum(size)])
    chain = np.repeat(np.arange(chains), length)
    op = chain // width + 1 + np.arange(len(chain))
    first, last = np.diff(chain, prepend=-1) > 0, np.diff(chain, append=chains) > 0
    before = np.where(first, fork[chain // width], op - 1)
    joins = np.stack([op[last], fork[1:][chain[last] // width]], axis=1)
    block = np.append(
        np.repeat(np.arange(blocks), size), blocks - 1
    )  # the last join belongs to the block that it joins
    return Shape(np.concatenate([np.stack([before, op], axis=1), joins]), block, _none(num_ops))


def series_parallel(num_ops: int, generator: np.random.Generator, *, density: float | int = 1.5) -> Shape:
    """A graph grown from one edge, by ops put into an edge (in series) or beside it (in parallel).

    There are `density` edges an op on average.
    """
    if not 1 <= density <= 2:
        raise ValueError(f"density: {density} is not between 1 and 2, the edges that series-parallel graphs have an op")
    chosen, beside = generator.random(num_ops), generator.random(num_ops) < density - 1
    edges, after = [(0, 1)], {0: 1}
    for op in range(2, num_ops):
        picked = int(chosen[op] * len(edges))
        source, target = edges[picked]
        # op comes directly behind its source, so before every other op that the source leads to
        after[op], after[source] = after[source], op
        if beside[op]:
            edges.append((source, op))
        else:
            edges[picked] = (source, op)
        edges.append((op, target))
    position, op = np.zeros(num_ops, dtype=np.int64), 0
    for number in range(num_ops):
        position[op] = number
        op = after.get(op, 1)
    return _single(num_ops, position[np.array(edges)])


def repeated_block(
    num_ops: int,
    generator: np.random.Generator,
    *,
    blocks: int | None = None,
    width: int | None = None,
    density: float | int = 1.5,
) -> Shape:
    """A short stem, then `blocks` copies of one layered block in a row (default: the root of `num_ops`, at most 16).

    A block has one op that reads the outputs of the two blocks before it, layers of at most `width` (default 4) ops,
    and one op that gives its output.
    """
    blocks = min(16, round(num_ops**0.5)) if blocks is None else blocks
    width = 4 if width is None else width
    for what, value in (("blocks", blocks), ("width", width), ("density", density)):
        _at_least(what, value, 1)
    _at_least("num_ops", num_ops, 2 * blocks, f", for {blocks} blocks of two ops or more")
    size, stem = num_ops // blocks, num_ops % blocks
    pattern = _block(size, generator, width, density)
    start = stem + size * np.arange(blocks)
    inside = (start[:, None, None] + pattern).reshape(-1, 2)
    chain = np.stack([np.arange(stem), np.arange(1, stem + 1)], axis=1)
    behind = np.stack([start[1:] - 1, start[1:]], axis=1)
    skipping = np.stack([start[2:] - size - 1, start[2:]], axis=1)
    role = np.concatenate([np.full(stem, NONE), np.tile(np.arange(size), blocks)])
    block = np.concatenate([np.full(stem, NONE), np.repeat(np.arange(blocks), size)])
    return Shape(np.concatenate([chain, inside, behind, skipping]), block, role)


def _block(size: int, generator: np.random.Generator, width: int, density: float | int) -> Int64[np.ndarray, "edges 2"]:
    """The edges of one block: an entering op, layers, a leaving op."""
    if size == 2:
        return np.array([[0, 1]])
    edges = 1 + _layers(size - 2, generator, width, density)
    inner = np.arange(1, size - 1)
    first, last = np.setdiff1d(inner, edges[:, 1]), np.setdiff1d(inner, edges[:, 0])
    entering = np.stack([np.zeros_like(first), first], axis=1)
    leaving = np.stack([last, np.full_like(last, size - 1)], axis=1)
    return np.concatenate([entering, edges, leaving])


def _layers(
    num_ops: int, generator: np.random.Generator, width: int, density: float | int
) -> Int64[np.ndarray, "edges 2"]:
    layer = _layer_of_ops(num_ops, generator, width)
    start = np.searchsorted(layer, np.arange(layer[-1] + 2))
    op = np.arange(start[1], num_ops)
    before = _among(start[layer[op] - 1], start[layer[op]], generator)
    more = np.repeat(op, generator.poisson(density - 1, len(op)))
    earlier = _among(np.zeros_like(more), start[layer[more]], generator)
    edges = np.stack([np.concatenate([before, earlier]), np.concatenate([op, more])], axis=1)
    unused = np.setdiff1d(np.arange(start[-2]), edges[:, 0])
    after = _among(start[layer[unused] + 1], start[layer[unused] + 2], generator)
    return np.unique(np.concatenate([edges, np.stack([unused, after], axis=1)]), axis=0)


def _layer_of_ops(num_ops: int, generator: np.random.Generator, width: int) -> Int64[np.ndarray, " ops"]:
    """The layer of each op, in order. There are at least two layers, so that every op has an edge."""
    least, most = (width + 1) // 2, min(width, num_ops)
    sizes = generator.integers(min(least, most), most + 1, 2 + num_ops // least)
    sizes[0] = max(1, min(sizes[0], num_ops - 1))
    return np.repeat(np.arange(len(sizes)), sizes)[:num_ops]


def _among(
    low: Int64[np.ndarray, " draws"], high: Int64[np.ndarray, " draws"], generator: np.random.Generator
) -> Int64[np.ndarray, " draws"]:
    """A random op from `low` to `high - 1` for each row."""
    return low + (generator.random(len(low)) * (high - low)).astype(np.int64)


def _single(num_ops: int, edges: Int64[np.ndarray, "edges 2"]) -> Shape:
    """A shape without a repeated pattern."""
    return Shape(edges, _none(num_ops), _none(num_ops))


def _none(num_ops: int) -> Int64[np.ndarray, " ops"]:
    return np.full(num_ops, NONE, dtype=np.int64)


def _at_least(what: str, value: float | int, least: int, why: str = "") -> None:
    if not value >= least:
        raise ValueError(f"{what}: {value} is less than {least}{why}")
