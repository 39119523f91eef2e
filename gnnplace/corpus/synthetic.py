"""Synthetic computation graphs for training and tests: a random shape whose ops have the costs of ops in real graphs.

    synthetic("layered", num_ops=200, seed=3, donors=[manifest.graph("nmt-2")])    # is called layered-200-seed3

All figures of an op (arithmetic, bytes, outputs, memory and kind) come from one op of one donor graph. Every donor is
equally likely, and so is every op within a donor. Copies of a repeated block have the same costs, op by op. The same
arguments give the same bytes.

A donor's row is an op that runs a kernel and writes outputs of its own. Its `bytes_accessed` are stated, since its new
inputs have other sizes. It brings the persistent memory of the variables that it is the first to read: a matrix product
comes with its weights and their optimiser state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np
from jaxtyping import Int64

from gnnplace.choices import FAMILIES, SyntheticFamily
from gnnplace.corpus.shapes import MIN_OPS, Shape, fork_join, layered, repeated_block, series_parallel
from gnnplace.graph import CONTROL, MAX_OPS, NONE, ComputationGraph, Op, Output

OPTIONS: dict[SyntheticFamily, tuple[str, ...]] = {
    "layered": ("width", "density"), "fork-join": ("width", "blocks"), "series-parallel": ("density",),
    "repeated-block": ("blocks", "width", "density"),
}  # fmt: skip


def synthetic(
    family: SyntheticFamily, *, num_ops: int, seed: int, donors: Sequence[ComputationGraph],
    width: int | None = None, density: float | int | None = None, blocks: int | None = None,
) -> ComputationGraph:  # fmt: skip
    """The graph of a family, size and seed, with costs of the donors' ops.

    `width` (ops side by side, or chains of a fork), `density` (edges an op on average) and `blocks` (repetitions) are
    options of the families in OPTIONS; their defaults depend on the family. Raises ValueError if the family lacks an
    option or its value is out of range.
    """
    options = {
        key: value for key, value in (("width", width), ("density", density), ("blocks", blocks)) if value is not None
    }
    _check(family, num_ops, seed, options)
    rows = all_rows(donors)
    generator = np.random.default_rng([seed, num_ops, FAMILIES.index(family)])
    shape = _shape(family, num_ops, generator, options)
    name = "-".join([family, str(num_ops), f"seed{seed}", *(f"{key}{value:g}" for key, value in options.items())])
    return _graph(name, shape, rows, generator)


def _check(family: SyntheticFamily, num_ops: int, seed: int, options: dict[str, float | int]) -> None:
    if not MIN_OPS <= num_ops <= MAX_OPS:
        raise ValueError(f"num_ops: {num_ops} is not between {MIN_OPS} and {MAX_OPS}")
    if seed < 0:
        raise ValueError(f"seed: {seed} is negative")
    for key, value in options.items():
        if value > num_ops:
            raise ValueError(f"{key}: {value} is more than the {num_ops} ops that there are")
    foreign = options.keys() - set(OPTIONS[family])
    if foreign:
        raise ValueError(f"{min(foreign)}: no option of {family} graphs, which have {', '.join(OPTIONS[family])}")


def _shape(family: SyntheticFamily, num_ops: int, generator: np.random.Generator, options: dict) -> Shape:
    match family:
        case "layered":
            return layered(num_ops, generator, **options)
        case "fork-join":
            return fork_join(num_ops, generator, **options)
        case "series-parallel":
            return series_parallel(num_ops, generator, **options)
        case "repeated-block":
            return repeated_block(num_ops, generator, **options)
        case _:
            assert_never(family)


def _graph(name: str, shape: Shape, rows: Sequence[DonorRows], generator: np.random.Generator) -> ComputationGraph:
    donor, row = _drawn(shape.role, rows, generator)
    ops = [
        rows[lender].op(lent, f"op{number}", None if block == NONE else block)
        for number, (lender, lent, block) in enumerate(
            zip(donor.tolist(), row.tolist(), shape.block.tolist(), strict=True)
        )
    ]
    num_outputs = np.array([len(op.outputs) for op in ops])
    source, target = shape.edges.T
    output = (generator.random(len(source)) * num_outputs[source]).astype(np.int64)
    return ComputationGraph.from_ops(name, ops, zip(source.tolist(), output.tolist(), target.tolist(), strict=True))


def _drawn(
    role: Int64[np.ndarray, " ops"], rows: Sequence[DonorRows], generator: np.random.Generator
) -> tuple[Int64[np.ndarray, " ops"], Int64[np.ndarray, " ops"]]:
    """A random donor for each op, and one of the donor's rows; ops of one role share those of the first."""
    donor = generator.integers(0, len(rows), len(role))
    row = (generator.random(len(role)) * np.array([len(lent.ops) for lent in rows])[donor]).astype(np.int64)
    first = np.arange(len(role))
    roles, position = np.unique(role, return_index=True)
    copies = role != NONE
    first[copies] = position[np.searchsorted(roles, role[copies])]
    return donor[first], row[first]


@dataclass(frozen=True, eq=False)
class DonorRows:
    """The rows of a donor: ops whose figures may be copied.

    `persistent_bytes` are those of each op of the graph, including the variables that it brings.
    """

    graph: ComputationGraph
    ops: Int64[np.ndarray, " rows"]
    persistent_bytes: Int64[np.ndarray, " ops"]

    def op(self, row: int, name: str, block: int | None) -> Op:
        """An op called `name` with the figures of a row."""
        graph, op = self.graph, int(self.ops[row])
        outputs = range(int(graph.output_ptr[op]), int(graph.output_ptr[op + 1]))
        kind = graph.kind[op]
        assert kind is not None
        return Op(
            name, kind, tuple(Output(int(graph.output_bytes[k]), graph.shape(k),
            graph.output_dtype[k]) for k in outputs),
            flops=int(graph.flops[op]), bytes_accessed=int(graph.effective_bytes_accessed[op]),
            persistent_bytes=int(self.persistent_bytes[op]), workspace_bytes=int(graph.workspace_bytes[op]),
            canonical_kind=graph.canonical_kind[op], block=block, layer=None if block is None else f"blocks.{block}",
        )  # fmt: skip


def donor_rows(graph: ComputationGraph) -> DonorRows:
    """The rows of a graph. Raises ValueError if no op runs a kernel and gives data of its own."""
    has_alias = np.zeros(graph.num_ops, dtype=bool)
    has_alias[graph.output_op[graph.output_alias != NONE]] = True
    has_data = np.zeros(graph.num_ops, dtype=bool)
    has_data[graph.output_op[graph.output_bytes > 0]] = True
    ops = np.flatnonzero(graph.kernel & has_data & ~has_alias)
    if not len(ops):
        raise ValueError(f"donors: {graph.name!r} has no op that runs a kernel and gives data of its own")
    return DonorRows(graph, ops, _with_variables(graph, ops))


def _with_variables(graph: ComputationGraph, ops: Int64[np.ndarray, " rows"]) -> Int64[np.ndarray, " ops"]:
    """Each op's persistent bytes plus those of the variables that it is the first row to read."""
    persistent_bytes = graph.persistent_bytes.copy()
    is_row = np.zeros(graph.num_ops, dtype=bool)
    is_row[ops] = True
    position = np.empty(graph.num_ops, dtype=np.int64)
    position[graph.order] = np.arange(graph.num_ops)
    data = np.flatnonzero((graph.edge_output != CONTROL) & is_row[graph.edge_dst])
    variable = graph.output_op[graph.output_root[graph.edge_data[data]]]
    is_variable = (graph.persistent_bytes[variable] > 0) & ~is_row[variable]
    data, variable = data[is_variable], variable[is_variable]
    earliest = np.argsort(position[graph.edge_dst[data]], kind="stable")
    variables, first = np.unique(variable[earliest], return_index=True)
    np.add.at(persistent_bytes, graph.edge_dst[data[earliest[first]]], graph.persistent_bytes[variables])
    return persistent_bytes


def all_rows(donors: Sequence[ComputationGraph]) -> tuple[DonorRows, ...]:
    """The rows of every donor. Raises ValueError without donors or for a donor without rows."""
    if not donors:
        raise ValueError("donors: none given; pass at least one graph of the corpus, whose ops lend their costs")
    return tuple(donor_rows(graph) for graph in donors)
