"""A graph that lends its costs to synthetic ones, and what it lends, spelled out."""

from __future__ import annotations

from functools import cache

from gnnplace.graph import ComputationGraph, Op, Output


@cache
def donor(name: str = "donor", rows: int = 5) -> ComputationGraph:
    """Products, each with weights of its own, and one row of two outputs; a view, an update and an unused variable lend nothing."""
    ops = [Op("x", "input", (Output(8),), kernel=False)]
    edges = []
    for row in range(rows):
        variable = len(ops)
        ops += [
            Op(f"w{row}", "variable", (Output(0),), persistent_bytes=1200 + row, kernel=False),
            Op(f"w{row}/read", "read", (Output(400 + row, alias_of=(variable, 0)),), kernel=False),
            Op(
                f"y{row}",
                "MatMul",
                (Output(10 + row, (row + 1,), "float32"),),
                flops=100 + row,
                canonical_kind="matmul",
                workspace_bytes=row,
            ),
            Op(f"w{row}/update", "Update", (Output(400 + row, alias_of=(variable + 1, 0)),), canonical_kind="update"),
        ]
        edges += [(variable, 0, variable + 1), (variable + 1, 0, variable + 2), (0, 0, variable + 2)]
        edges += [(variable + 1, 0, variable + 3), (variable + 2, 0, variable + 3)]
    last = len(ops)
    ops += [
        Op("top", "TopK", (Output(3), Output(5)), bytes_accessed=77, canonical_kind="reduce"),
        Op("view", "Reshape", (Output(3, alias_of=(last, 0)),)),
        Op("unused", "variable", (Output(9),), persistent_bytes=9, kernel=False),
    ]
    return ComputationGraph.from_ops(name, ops, [*edges, (3, 0, last), (last, 0, last + 1)])


def figures(graph: ComputationGraph, op: int) -> tuple:
    """All that an op costs."""
    outputs = range(graph.output_ptr[op], graph.output_ptr[op + 1])
    return (
        graph.kind[op], graph.canonical_kind[op], int(graph.flops[op]), int(graph.bytes_accessed[op]), int(graph.persistent_bytes[op]),
        int(graph.workspace_bytes[op]), tuple((int(graph.output_bytes[k]), graph.shape(k), graph.output_dtype[k]) for k in outputs),
    )  # fmt: skip


def expected_rows(rows: int = 5) -> set[tuple]:
    """The figures that the donor of so many products lends."""
    products = {
        ("MatMul", "matmul", 100 + r, 8 + 400 + r + 10 + r, 1200 + r, r, ((10 + r, (r + 1,), "float32"),)) for r in range(rows)
    }  # fmt: skip
    return products | {("TopK", "reduce", 0, 77, 0, 0, ((3, None, None), (5, None, None)))}
