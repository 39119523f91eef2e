"""The computation graph of an OpenVINO model (IR versions 10 and 11): one op for each layer, input and weight, as the network runs forward.

`read_openvino` reads the `.xml` alone, without the package openvino; weights (the `.bin` beside it) are never opened. What constants and
shapes alone decide is a weight, as `openvino_network` says; costs are by the rules of `openvino_flops`, ops as `network_graph` says.
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
    """The graph of the `.xml` of an OpenVINO model, under `name` or the file's own.

    Its dimensions have no names, so all have to be fixed (`model.reshape(...)` before the model is saved). Raises ValueError, in one line,
    for dimensions without a size, subgraphs (TensorIterator, Loop, If), edges to nowhere, cycles, absurd sizes and whatever is no IR.
    """
    path = os.fspath(file)
    document = read_document(path)
    try:
        network = network_of(document)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return read_graph(path, network, OPENVINO, name)
