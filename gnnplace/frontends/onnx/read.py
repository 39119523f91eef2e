"""The computation graph of an ONNX file: one op for each node, input and weight, as the network runs forward.

`read_onnx` promises: shapes by ONNX's own inference, in a process that has little time and memory; costs by the rules of `onnx_flops`; ops
as `network_graph` says. Weights are never read, and files beside FILE never opened; training graphs that a file may have besides are
left out.
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
    """The graph of an ONNX file, under `name` or the file's own; `dims` are the sizes of its named dimensions (`{"batch": 8}`).

    Raises ValueError, in one line, where the package onnx is missing, a dimension has no size or no value a full shape, and for
    subgraphs (If, Loop, Scan), cycles, names that are missing or made twice, absurd sizes, and whatever is no ONNX.
    """
    return read_graph(file, read_model(file, dims or {}), ONNX, name)
