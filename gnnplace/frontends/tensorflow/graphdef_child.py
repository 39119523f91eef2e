"""The child process that reads one GraphDef.

`python -m gnnplace.frontends.tensorflow.graphdef_child REQUEST` prints a line of JSON. `graphdef` makes REQUEST;
`isolation.limited` limits the process. If a hostile file makes protobuf or shape inference hang, use all memory or
crash, only this process suffers. After the file is read, the process can't open another.
"""

from __future__ import annotations

import base64
import math
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef

from gnnplace.corpus import store
from gnnplace.frontends.tensorflow.calls import Flat, inlined
from gnnplace.frontends.tensorflow.graph import read_step
from gnnplace.frontends.tensorflow.graphdef_checks import check_graph, check_names, described, results, sizes
from gnnplace.frontends.tensorflow.kinds import MAX_FOLDED_ELEMENTS
from gnnplace.graph import ComputationGraph
from gnnplace.isolation.limited import answer

TEXT = ".pbtxt"


def main(request: str) -> None:
    """Answers one request on stdout."""
    _import_all()
    answer(
        request,
        lambda arguments: packed(
            read(arguments["file"], arguments["dims"], arguments["fetches"], arguments["name"], _open_no_more)
        ),
    )


def packed(graph: ComputationGraph) -> str:
    """The content of the graph's file in the corpus, as text."""
    return base64.b64encode(store.packed(graph)).decode()


def read(
    file: str,
    dims: Mapping[str, int],
    fetches: Sequence[str],
    name: str,
    after_opening: Callable[[], None] = lambda: None,
) -> ComputationGraph:
    """The step in the file; calls `after_opening` once no more files need to be opened.

    Raises ValueError if the file is refused.
    """
    graph = parsed(Path(file))
    after_opening()
    flat = checked(graph, dims)
    computed = [flat.fetched(fetch) for fetch in fetches] or results(flat.graph)
    if not any(node.op in ("VarHandleOp", "Variable", "VariableV2") for node in flat.graph.node):
        _thaw(flat.graph)
    try:
        return read_step(flat.graph, computed, name)
    except (tf.errors.OpError, TypeError, OverflowError) as error:
        raise ValueError(" ".join(str(error).split())[:300]) from error


def parsed(path: Path) -> Any:
    """The GraphDef in a file. Raises ValueError if it can't be parsed."""
    content, graph = path.read_bytes(), GraphDef()
    why = "can't be parsed: it is no GraphDef, cut short, nested too deeply, or takes more memory than it may"
    try:
        if path.suffix == TEXT:
            return text_format.Parse(content.decode(), graph)
        graph.ParseFromString(content)
    except (DecodeError, text_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        where = f" ({' '.join(str(error).split())[:200]})" if isinstance(error, text_format.ParseError) else ""
        raise ValueError(why + where) from error
    return graph


def checked(graph: Any, dims: Mapping[str, int]) -> Flat:
    """A checked graph for TensorFlow, without calls and with the sizes of open dimensions. Raises ValueError."""
    check_graph(graph)
    _size_placeholders(graph, dims)
    flat = inlined(graph)
    check_names(flat.graph)
    return flat


def _size_placeholders(graph: Any, dims: Mapping[str, int]) -> None:
    """Gives open dimensions of placeholders the sizes in `dims`.

    Raises ValueError for an open dimension without a size, and for a size of anything else.
    """
    used = set()
    for node in graph.node:
        if node.op != "Placeholder":
            continue
        shape = node.attr["shape"].shape
        if shape.unknown_rank or "shape" not in node.attr:
            raise ValueError(f"{described(node)}: has no rank; set its shape where the graph is made")
        for index, dim in enumerate(shape.dim):
            if dim.size < 0:
                key = f"{node.name}[{index}]"
                if key not in dims:
                    raise ValueError(
                        f"{described(node)}: {sizes(shape)} leaves dimension {index} open; give it by --dim "
                        f"'{key}=SIZE'"
                    )
                dim.size = dims[key]
                used.add(key)
    if unused := sorted(set(dims) - used):
        choices = ", ".join(sorted(used)) or "none"
        raise ValueError(f"dims: {unused[0]!r} is no open dimension of a placeholder; there are: {choices}")


def _thaw(graph: Any) -> None:
    """Turns the weights of a frozen graph back into variables; the read of a variable gets the name of the weight."""
    variables = []
    for node in graph.node:
        if node.op == "Const" and _is_weight(node):
            variable, dtype = NodeDef(name=f"{node.name}/variable", op="VarHandleOp"), node.attr["dtype"].type
            variable.attr["dtype"].type = dtype
            variable.attr["shape"].shape.CopyFrom(node.attr["value"].tensor.tensor_shape)
            variable.attr["shared_name"].s = variable.name.encode()
            waits = list(node.input)
            node.Clear()
            node.name, node.op = variable.name.removesuffix("/variable"), "ReadVariableOp"
            node.attr["dtype"].type = dtype
            node.input[:] = [variable.name, *waits]
            variables.append(variable)
    graph.node.extend(variables)


def _is_weight(node: NodeDef) -> bool:
    dtype, elements = tf.as_dtype(node.attr["dtype"].type), math.prod(sizes(node.attr["value"].tensor.tensor_shape))
    whole = dtype.is_integer or dtype.is_bool
    return dtype != tf.string and elements > (MAX_FOLDED_ELEMENTS if whole else 1)


def _import_all() -> None:
    """Reads a small graph, so that everything that is imported or compiled late is there before files are closed.

    Its shapes need arithmetic on constants, for which TensorFlow looks up its kernels in this process.
    """
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (2, 3), "x")
        tf.reshape(x, tf.raw_ops.Add(x=[1, 2], y=[2, 0]), "y")
    packed(read_step(graph.as_graph_def(), ["y:0"], "small"))


def _open_no_more() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


if __name__ == "__main__":
    main(sys.argv[1])
