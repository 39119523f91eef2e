"""Reads an ONNX file in a child process that has little time and memory: what it says comes back as plain records."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gnnplace.frontends.network.network import Network
from gnnplace.frontends.onnx.model import from_json
from gnnplace.isolation.limited import Child, ask, check_dims

CHILD = Child("gnnplace.frontends.onnx.child", "onnx", "an ONNX file")


def read_model(file: str | os.PathLike[str], dims: Mapping[str, int]) -> Network:
    """The network in an ONNX file, `dims` being the sizes of its named dimensions.

    Raises ValueError where the package onnx is missing, for bad sizes, and for whatever is wrong with the file; OSError where it
    can't be read.
    """
    check_dims(dims)
    return from_json(ask(CHILD, os.fspath(file), {"dims": dict(dims)}))
