"""Columns of a stored graph fit each other: lengths, pointers and indices, before anything follows them.

ComputationGraph checks what a graph must satisfy and trusts the shape of its columns, which `from_ops` makes;
a file has to be asked first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gnnplace.graph import CONTROL, NONE, Categorical

_OP_COLUMNS = (
    "kind", "canonical_kind", "phase", "layer", "colocation", "allowed",
    "flops", "bytes_accessed", "persistent_bytes", "workspace_bytes", "kernel", "block", "time_step",
)  # fmt: skip
_OUTPUT_COLUMNS = ("output_bytes", "output_dtype", "output_rank", "output_alias", "output_is_result")


def check(columns: Mapping[str, Any]) -> None:
    """Raises ValueError (one line: column, value, rule) where the columns of a graph don't fit each other."""
    ops, outputs, edges = len(columns["op_names"]), len(columns["output_bytes"]), len(columns["edge_src"])
    _lengths(columns, dict.fromkeys(_OP_COLUMNS, ops) | dict.fromkeys(_OUTPUT_COLUMNS, outputs))
    _lengths(columns, {"output_ptr": ops + 1, "edge_output": edges, "edge_dst": edges})
    _pointers(columns, outputs)
    for column, value in columns.items():
        if isinstance(value, Categorical):
            _range(f"{column}.index", value.index, NONE, len(value.values) - 1)
            if len(set(value.values)) < len(value.values):
                raise ValueError(f"{column}.values: the strings are not distinct")
    _range("kind.index", columns["kind"].index, 0, len(columns["kind"].values) - 1)
    _range("output_alias", columns["output_alias"], NONE, outputs - 1)
    _range("edge_src", columns["edge_src"], 0, ops - 1)
    _range("edge_dst", columns["edge_dst"], 0, ops - 1)
    _sorted_edges(columns)


def _lengths(columns: Mapping[str, Any], expected: Mapping[str, int]) -> None:
    for column, length in expected.items():
        value = columns[column]
        found = len(value.index if isinstance(value, Categorical) else value)
        if found != length:
            raise ValueError(f"{column}: {found} entries where {length} are due")


def _pointers(columns: Mapping[str, Any], outputs: int) -> None:
    pointers, rank = columns["output_ptr"], columns["output_rank"]
    if pointers[0] != 0 or pointers[-1] != outputs or (np.diff(pointers) < 0).any():
        raise ValueError(f"output_ptr: does not rise from 0 to {outputs}, the number of outputs")
    _range("output_rank", rank, NONE, len(columns["output_dims"]))
    if np.maximum(rank, 0).sum() != len(columns["output_dims"]):
        raise ValueError(f"output_dims: {len(columns['output_dims'])} entries where {np.maximum(rank, 0).sum()} are due")


def _range(column: str, values: np.ndarray, low: int, high: int) -> None:
    bad = (values < low) | (values > high)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"{column}[{row}]: {values[row]} is not between {low} and {high}")


def _sorted_edges(columns: Mapping[str, Any]) -> None:
    _range("edge_output", columns["edge_output"], CONTROL, len(columns["output_bytes"]))
    order = np.lexsort((columns["edge_dst"], columns["edge_output"], columns["edge_src"]))
    table = np.stack([columns["edge_src"], columns["edge_output"], columns["edge_dst"]], axis=1)
    if (order[1:] < order[:-1]).any() or (table[1:] == table[:-1]).all(axis=1).any():
        raise ValueError("edges: not sorted and distinct")
