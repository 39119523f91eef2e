"""Reads an ONNX file as the graph of a forward pass: one op for each node, input and weight.

Shapes come from ONNX's own inference, which runs in a child process with limited time and memory. `flops` states the costs, `network.graph`
the ops. Weights are never read, and no other file is opened. Training graphs in the file are ignored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from gnnplace.frontends.network.graph import FileGraph, Format, read_graph
from gnnplace.frontends.onnx import flops
from gnnplace.frontends.onnx.kinds import KNOWN, canonical_kind, is_view
from gnnplace.frontends.onnx.reader import read_model

ONNX = Format("node", KNOWN, is_view, canonical_kind, flops.flops)


def read_onnx(file: str | os.PathLike[str], dims: Mapping[str, int] | None = None, name: str | None = None) -> FileGraph:
    """The graph of an ONNX file, named `name` or after the file. `dims` gives sizes of symbolic dimensions (`{"batch": 8}`).

    Raises ValueError (one line) if the package onnx is missing, for a dimension without a size, a value whose shape can't be inferred,
    subgraphs (If, Loop, Scan), cycles, missing or duplicate names, absurd sizes, and anything that is no ONNX model.
    """
    return read_graph(file, read_model(file, dims or {}), ONNX, name)
