"""The computation graph of a TensorFlow GraphDef file: binary (`.pb`) or text (`.pbtxt`), a frozen network or a training graph.

`read_graphdef` promises what `read_step` does for the ops that the fetches need, function calls inlined. Where the graph has no
variables it is frozen: its constants are weights, and become variables with their bytes and one read each; those that hold a few
whole numbers or a single value (a shape, an axis, a scale) stay constants. The file is read in a process that has little time and
memory (`graphdef_child`); nothing of it is run, and no other file opened.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gnnplace.corpus import store
from gnnplace.graph import ComputationGraph
from gnnplace.isolation.limited import Child, ask, check_dims

CHILD = Child("gnnplace.frontends.tensorflow.graphdef_child", "tensorflow", "a GraphDef", memory_bytes=8 * 2**30)


def read_graphdef(
    file: str | os.PathLike[str], dims: Mapping[str, int] | None = None, fetches: Sequence[str] = (), name: str | None = None
) -> ComputationGraph:
    """The step of the graph in a file, under `name` or the file's own.

    `fetches` are what it computes, tensors (`loss:0`) or ops (`train`); without them all tensors that no op takes, where the graph
    writes no variable. `dims` are the sizes of dimensions that placeholders leave open (`{"images[0]": 8}`). Raises ValueError, in
    one line, where TensorFlow is missing, a size is missing or left over, fetches are ambiguous, and for control flow, reference
    variables, cycles, absurd sizes, and whatever is no GraphDef; OSError where the file can't be read.
    """
    path = os.fspath(file)
    if os.path.isdir(path) or os.path.basename(path) == "saved_model.pb":
        how = "a function that returns TensorFlowFunction(tf.saved_model.load(FOLDER).signatures['serving_default'])"
        raise ValueError(f"{path}: is a SavedModel, not a GraphDef; give GRAPH as FILE.py:FUNCTION, {how}")
    check_dims(dims or {})
    asked = {"dims": dict(dims or {}), "fetches": list(fetches), "name": name or Path(path).stem}
    return store.unpacked(base64.b64decode(ask(CHILD, path, asked)))  # a graph as JSON takes longer than to read the file
