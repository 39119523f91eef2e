"""Reads a TensorFlow GraphDef file, binary (`.pb`) or text (`.pbtxt`): a frozen network or a training graph.

Function calls are inlined; then the rules of `read_step` apply. A graph without variables is frozen: its constants are
weights, each a variable with one read, except constants of a few integers or one value (a shape, an axis, a scale). A
child process with limited time and memory reads the file (`graphdef_child`). Nothing in the file is run, and no other
file is opened.
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
    file: str | os.PathLike[str],
    dims: Mapping[str, int] | None = None,
    fetches: Sequence[str] = (),
    name: str | None = None,
) -> ComputationGraph:
    """The graph of the step in a file, named `name` or after the file.

    `fetches` are the tensors (`loss:0`) or ops (`train`) that the step computes; the default, for a graph that writes
    no variable, is all tensors without consumers. `dims` gives sizes of open placeholder dimensions
    (`{"images[0]": 8}`). Raises ValueError (one line) if TensorFlow is missing, a size is missing or unused, or fetches
    are ambiguous, and for control flow, reference variables, cycles, absurd sizes, and any file that is not a GraphDef;
    OSError if the file can't be read.
    """
    path = os.fspath(file)
    if os.path.isdir(path) or os.path.basename(path) == "saved_model.pb":
        advice = "a function that returns TensorFlowFunction(tf.saved_model.load(FOLDER).signatures['serving_default'])"
        raise ValueError(f"{path}: is a SavedModel, not a GraphDef; give GRAPH as FILE.py:FUNCTION, {advice}")
    check_dims(dims or {})
    arguments = {"dims": dict(dims or {}), "fetches": list(fetches), "name": name or Path(path).stem}
    # packed by `graphdef_child.packed`: the graph as JSON would take longer than reading the file
    return store.unpacked(base64.b64decode(ask(CHILD, path, arguments)))
