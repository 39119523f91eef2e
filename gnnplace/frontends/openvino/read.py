"""Reads an OpenVINO model (IR versions 10 and 11) as the graph of a forward pass: one op for each layer, input and weight.

Only the `.xml` is read, without the package openvino; the weights (the `.bin` beside it) are never opened. Values that depend only on
constants and shapes count as weights (see `network`). `flops` states the costs, `frontends.network.graph` the ops.
"""

from __future__ import annotations

import os

from gnnplace.frontends.network.graph import FileGraph, Format, read_graph
from gnnplace.frontends.openvino import flops
from gnnplace.frontends.openvino.kinds import canonical_kind, is_view
from gnnplace.frontends.openvino.network import network_of
from gnnplace.frontends.openvino.xml import read_document

OPENVINO = Format("layer", frozenset(), is_view, canonical_kind, flops.flops)


def read_openvino(file: str | os.PathLike[str], name: str | None = None) -> FileGraph:
    """The graph of the `.xml` of an OpenVINO model, named `name` or after the file.

    All dimensions must be fixed (`model.reshape(...)` before the model is saved). Raises ValueError (one line) for a dimension without a
    size, subgraphs (TensorIterator, Loop, If), dangling edges, cycles, absurd sizes, and anything that is no IR.
    """
    path = os.fspath(file)
    document = read_document(path)
    try:
        network = network_of(document)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return read_graph(path, network, OPENVINO, name)
