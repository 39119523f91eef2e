"""Reads an ONNX file as the graph of a forward pass: one op for each node, input and weight.

Shapes come from ONNX's own inference, which runs in a child process with limited time and memory. Control flow that
constants and shapes decide is taken apart (`resolving`). `flops` has the costs, `network.graph` makes the ops. Weights
are never read, and no other file is opened. Training graphs in the file are ignored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from gnnplace.frontends.network.graph import Format, read_graph
from gnnplace.frontends.network.network import Network, from_json
from gnnplace.frontends.onnx import flops
from gnnplace.frontends.onnx.flops import STATIC, canonical_kind, is_view
from gnnplace.graph import ComputationGraph
from gnnplace.isolation.limited import Child, ask, check_dims

ONNX = Format("node", STATIC, is_view, canonical_kind, flops.flops)
CHILD = Child("gnnplace.frontends.onnx.child", "onnx", "an ONNX file")


def read_onnx(
    file: str | os.PathLike[str], dims: Mapping[str, int] | None = None, name: str | None = None
) -> ComputationGraph:
    """The graph of an ONNX file, named `name` or after the file.

    `dims` gives sizes of symbolic dimensions (`{"batch": 8}`). Raises ValueError (one line) if the package onnx is
    missing, for a dimension without a size, a value whose shape can't be inferred, control flow (If, Loop, Scan) and
    sequences that values decide, cycles, missing or duplicate names, absurd sizes, and any file that is not an ONNX
    model.
    """
    return read_graph(file, read_model(file, dims or {}), ONNX, name)


def read_model(file: str | os.PathLike[str], dims: Mapping[str, int]) -> Network:
    """The network in an ONNX file; `dims` gives sizes of symbolic dimensions.

    Raises ValueError if the package onnx is missing, a size is invalid or the file is refused, OSError if it can't be
    opened.
    """
    check_dims(dims)
    return from_json(ask(CHILD, os.fspath(file), {"dims": dict(dims)}))
