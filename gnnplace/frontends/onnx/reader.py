"""Reads an ONNX file in a child process with limited time and memory; the network comes back as plain records."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gnnplace.frontends.network.network import Network
from gnnplace.frontends.onnx.model import from_json
from gnnplace.isolation.limited import Child, ask, check_dims

CHILD = Child("gnnplace.frontends.onnx.child", "onnx", "an ONNX file")


def read_model(file: str | os.PathLike[str], dims: Mapping[str, int]) -> Network:
    """The network in an ONNX file; `dims` gives sizes of symbolic dimensions.

    Raises ValueError if the package onnx is missing, a size is bad or the file is refused, OSError if it can't be opened.
    """
    check_dims(dims)
    return from_json(ask(CHILD, os.fspath(file), {"dims": dict(dims)}))
